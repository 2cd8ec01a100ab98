import { parseValue } from "./json-scan.ts";
import { skipSpace, skipValue } from "./json-skip.ts";

/** Null: the engine did not say, which is not zero. */
export interface Usage {
  readonly promptTokens: number | null;
  readonly completionTokens: number | null;
  /** Prompt tokens that the engine did not compute: its cache, or pulled from another. */
  readonly cachedTokens: number | null;
}

/** Far above any usage chunk with what engines put around it. */
const tailBytesMax = 4_096;

const key = new TextEncoder().encode('"usage":');

/**
 * Keeps the tail of a stream and reads the last usage object in it, once, at the end; no chunk is
 * parsed. For whole answers use `readUsage` on the member: there the handle may follow the usage.
 */
export class UsageReader {
  readonly #tail = new Uint8Array(2 * tailBytesMax);
  #length = 0;

  push(bytes: Uint8Array): void {
    const added = bytes.length > tailBytesMax ? bytes.subarray(-tailBytesMax) : bytes;
    if (this.#length + added.length > this.#tail.length) {
      const kept = Math.min(this.#length, tailBytesMax);
      this.#tail.copyWithin(0, this.#length - kept, this.#length);
      this.#length = kept;
    }
    this.#tail.set(added, this.#length);
    this.#length += added.length;
  }

  /** Null when the tail holds no usage object. */
  read(): Usage | null {
    const tail = this.#tail.subarray(0, this.#length);
    for (let at = tail.length - key.length; at >= 0; at--) {
      if (!startsWithKey(tail, at)) continue;
      const start = skipSpace(tail, at + key.length);
      const end = skipValue(tail, start);
      const usage = end < 0 ? null : readUsage(tail.subarray(start, end));
      if (usage !== null) return usage;
    }
    return null;
  }
}

/** Usage of the bytes of a `usage` value; null when they are no object (`null` included). */
export function readUsage(value: Uint8Array): Usage | null {
  const usage = parseValue(value);
  if (!isRecord(usage)) return null;
  const details = usage["prompt_tokens_details"];
  return {
    promptTokens: count(usage["prompt_tokens"]),
    completionTokens: count(usage["completion_tokens"]),
    cachedTokens: isRecord(details) ? count(details["cached_tokens"]) : null,
  };
}

/** In a JSON string the quotes would have backslashes before them, so text never looks like the key. */
function startsWithKey(bytes: Uint8Array, at: number): boolean {
  if (bytes[at - 1] === 0x5c) return false;
  for (let index = 0; index < key.length; index++) {
    if (bytes[at + index] !== key[index]) return false;
  }
  return true;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function count(value: unknown): number | null {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : null;
}
