import { createHash } from "node:crypto";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { readSecretFile } from "@baton/service-host";

const keyLengthMin = 16;

/**
 * Client API keys: one `name: key` a line; empty lines and lines with `#` in front do not count. Gives
 * SHA-256 → name, the keys themselves are not kept. Errors: BATON_CONFIG_INVALID with every bad line.
 */
export function readApiKeysFile(file: string): Outcome<ReadonlyMap<string, string>, BatonError> {
  const read = readSecretFile(file);
  if (!read.ok) return read;
  const names = new Set<string>();
  const keys = new Map<string, string>();
  const problems: string[] = [];
  read.value.secret.split("\n").forEach((line, at) => {
    const text = line.trim();
    if (text === "" || text.startsWith("#")) return;
    const match = /^([^\s:]+)\s*:\s*(\S+)$/.exec(text);
    const [, name, key] = match ?? [];
    const problem =
      name === undefined || key === undefined
        ? "is not `name: key`"
        : key.length < keyLengthMin
          ? `key of ${name} has under ${keyLengthMin} characters`
          : names.has(name)
            ? `name ${name} stands there twice`
            : keys.has(digest(key))
              ? `${name} has the key of ${keys.get(digest(key))}`
              : null;
    if (problem !== null) problems.push(`${file}:${at + 1}: ${problem}`);
    else {
      names.add(name!);
      keys.set(digest(key!), name!);
    }
  });
  if (problems.length === 0 && keys.size === 0) problems.push(`${file}: holds no key`);
  if (problems.length > 0) return fail(batonError("BATON_CONFIG_INVALID", problems.join("; ")));
  return ok(keys);
}

function digest(key: string): string {
  return createHash("sha256").update(key).digest("hex");
}
