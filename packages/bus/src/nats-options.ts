import { readFileSync } from "node:fs";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import type { Timers } from "@baton/ports";
import {
  type Authenticator,
  type ConnectionOptions,
  credsAuthenticator,
  nkeyAuthenticator,
  tokenAuthenticator,
  usernamePasswordAuthenticator,
} from "nats";
import type { BusHooks, BusLimits } from "./bus-events.ts";
import { readNatsUrls } from "./nats-url.ts";
import { isSubject } from "./subject.ts";

/** Files are read again at each reconnect, so that rotated credentials are taken up. */
export type NatsAuth =
  | { readonly kind: "password"; readonly user: string; readonly password: string }
  | { readonly kind: "token"; readonly token: string }
  | { readonly kind: "nkey"; readonly seedFile: string }
  | { readonly kind: "creds"; readonly file: string };

/** PEM files. Without `caFile` the system's authorities count; cert and key come together. */
export interface NatsTls {
  readonly caFile?: string;
  readonly certFile?: string;
  readonly keyFile?: string;
}

export interface NatsBusOptions extends BusHooks {
  /**
   * `nats://host:port` or `tls://host:port`; several as a list or with commas. User and password
   * (or a token alone) may stand in the URL instead of in `auth`.
   */
  readonly url: string | readonly string[];
  /** The service's name, shown by the server and in error texts. */
  readonly name: string;
  readonly auth?: NatsAuth;
  readonly tls?: NatsTls;
  /** Subject under which answers come; permissions can be as narrow as it. Default `_INBOX`. */
  readonly inboxPrefix?: string;
  /** How long to try for the first connection; Infinity waits for the server. Default 10,000. */
  readonly connectMsMax?: number;
  /** Ends the wait for the first connection. */
  readonly signal?: AbortSignal;
  /** First and longest wait between attempts. Defaults 50 and 2,000. */
  readonly reconnectMsFirst?: number;
  readonly reconnectMsMax?: number;
  /** A server that misses two pings in a row is left. Default 5,000. */
  readonly pingIntervalMs?: number;
  /** Bytes sent and not known to be read; beyond it sends give BATON_SATURATED. Default 64 MiB. */
  readonly outboundBytesMax?: number;
  readonly limits?: Partial<BusLimits>;
  readonly timers?: Timers;
}

export interface NatsSettings {
  readonly client: ConnectionOptions;
  readonly inboxPrefix: string;
  readonly shownUrl: string;
}

/** What the client needs to know, or BATON_CONFIG_INVALID; files are read here for the first time. */
export function readNatsOptions(options: NatsBusOptions): Outcome<NatsSettings, BatonError> {
  const inboxPrefix = options.inboxPrefix ?? "_INBOX";
  if (!isSubject(inboxPrefix)) {
    return fail(invalid(`the NATS inbox prefix is not a subject: ${inboxPrefix}`));
  }
  const urls = readNatsUrls(options.url);
  if (!urls.ok) return urls;
  if (options.auth !== undefined && urls.value.auth !== null) {
    return fail(invalid("NATS credentials stand both in the URL and in the auth option"));
  }
  try {
    const auth = options.auth ?? urls.value.auth;
    const tls = options.tls ?? (urls.value.needsTls ? {} : null);
    const client: ConnectionOptions = {
      servers: [...urls.value.servers],
      name: options.name,
      ...(auth === null ? {} : { authenticator: authenticatorOf(auth) }),
      ...(tls === null ? {} : { tls: checkedTls(tls) }),
    };
    return ok({ client, inboxPrefix, shownUrl: urls.value.shown });
  } catch (thrown) {
    const text = thrown instanceof Error ? thrown.message : String(thrown);
    return fail(invalid("NATS credentials or TLS files cannot be used", text));
  }
}

function authenticatorOf(auth: NatsAuth): Authenticator {
  if (auth.kind === "password") return usernamePasswordAuthenticator(auth.user, auth.password);
  if (auth.kind === "token") return tokenAuthenticator(auth.token);
  if (auth.kind === "creds") return fromFile(auth.file, credsAuthenticator);
  return fromFile(auth.seedFile, (bytes) => nkeyAuthenticator(trimmed(bytes)));
}

/**
 * Throws when the file is not usable now. Later the last usable content counts, since a throwing
 * authenticator would end the client for good while a secret is being replaced.
 */
function fromFile(file: string, make: (bytes: Uint8Array) => Authenticator): Authenticator {
  const read = (): Authenticator => make(readFileSync(file));
  let usable = read();
  try {
    usable("probe");
  } catch (thrown) {
    const text = thrown instanceof Error ? thrown.message : String(thrown);
    throw new Error(`${file}: ${text}`);
  }
  return (nonce) => {
    try {
      const fresh = read();
      const answer = fresh(nonce);
      usable = fresh;
      return answer;
    } catch {
      return usable(nonce);
    }
  };
}

function trimmed(bytes: Uint8Array): Uint8Array {
  return new TextEncoder().encode(new TextDecoder().decode(bytes).trim());
}

/** Throws when a file is missing; the client reads them at each connect. */
function checkedTls(tls: NatsTls): NatsTls {
  if ((tls.certFile === undefined) !== (tls.keyFile === undefined)) {
    throw new Error("tls.certFile and tls.keyFile come together");
  }
  for (const file of [tls.caFile, tls.certFile, tls.keyFile]) {
    if (file !== undefined) readFileSync(file);
  }
  return tls;
}

function invalid(message: string, cause?: string): BatonError {
  return batonError("BATON_CONFIG_INVALID", message, cause === undefined ? {} : { cause });
}
