import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";

/** A token or a key list is far below; a wrong path stops here. */
const secretBytesMax = 1024 * 1024;

export interface SecretFile {
  /** Content without one newline at its end. */
  readonly secret: string;
  /** Others than the owner and the group can read it. Worth a warning, not a refusal: mounted
   * Kubernetes secrets are mode 0644 unless told otherwise. */
  readonly isWorldReadable: boolean;
}

/** Reads a secret. Errors: BATON_CONFIG_INVALID when unreadable, empty, too large or not UTF-8. */
export function readSecretFile(file: string): Outcome<SecretFile, BatonError> {
  const refuse = (why: string) =>
    fail(batonError("BATON_CONFIG_INVALID", `The secret file ${file} ${why}.`));
  let bytes: Uint8Array;
  let mode: number;
  try {
    const descriptor = openSync(file, "r");
    try {
      mode = fstatSync(descriptor).mode;
      bytes = readAtMost(descriptor, secretBytesMax + 1);
    } finally {
      closeSync(descriptor);
    }
  } catch (thrown) {
    return refuse(`cannot be read (${(thrown as NodeJS.ErrnoException).code ?? "unknown error"})`);
  }
  if (bytes.length > secretBytesMax) return refuse(`has over ${secretBytesMax} bytes`);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return refuse("is not UTF-8");
  }
  const secret = text.replace(/\r?\n$/, "");
  if (secret.trim() === "") return refuse("is empty");
  return ok({ secret, isWorldReadable: (mode & 0o004) !== 0 });
}

/** Also from pipes and other files that do not tell their size. */
function readAtMost(descriptor: number, bytesMax: number): Uint8Array {
  const buffer = new Uint8Array(bytesMax);
  let length = 0;
  while (length < bytesMax) {
    const count = readSync(descriptor, buffer, length, bytesMax - length, null);
    if (count === 0) break;
    length += count;
  }
  return buffer.subarray(0, length);
}
