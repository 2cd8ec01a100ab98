import { isIP } from "node:net";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";

/**
 * Refuses to listen where others reach the port while nobody has to show a key. `keyName` and
 * `insecureName` are the config keys to speak of. Error: BATON_CONFIG_INVALID.
 */
export function checkListenAddress(given: {
  readonly host: string;
  /** Callers must show a key or a token. */
  readonly hasKeys: boolean;
  /** The operator says that the network around is trusted. */
  readonly insecure: boolean;
  readonly keyName?: string;
  readonly insecureName?: string;
}): Outcome<void, BatonError> {
  const { host, hasKeys, insecure, keyName = "keys", insecureName = "insecure: true" } = given;
  if (hasKeys || insecure || isLoopback(host)) return ok(undefined);
  const message =
    `${host} can be reached from other machines and no ${keyName} is set. ` +
    `Set ${keyName}, listen on 127.0.0.1, or say ${insecureName} where the network is trusted.`;
  return fail(batonError("BATON_CONFIG_INVALID", message));
}

/** 127.0.0.0/8, ::1 and `localhost`. Other names may resolve to anything, so they do not count. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, "$1");
  if (name === "localhost") return true;
  const mapped = name.replace(/^::ffff:(?=\d+\.)/, "");
  if (isIP(mapped) === 4) return mapped.startsWith("127.");
  // The URL parser writes an IPv6 address in its shortest form.
  return (
    isIP(name) === 6 && !name.includes("%") && new URL(`http://[${name}]`).hostname === "[::1]"
  );
}
