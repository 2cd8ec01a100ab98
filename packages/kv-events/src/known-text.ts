import type { MsgpackReader } from "./msgpack-reader.ts";

const encoder = new TextEncoder();

/**
 * Recognises a fixed set of short texts by their bytes, so that map keys, tags and media cost no
 * string. Built once per set.
 */
export class KnownTexts<T extends string> {
  /** By byte length. */
  readonly #entries: { readonly bytes: Uint8Array; readonly text: T }[][] = [];

  constructor(texts: readonly T[]) {
    for (const text of texts) {
      const bytes = encoder.encode(text);
      let entries = this.#entries[bytes.length];
      if (entries === undefined) {
        entries = [];
        this.#entries[bytes.length] = entries;
      }
      entries.push({ bytes, text });
    }
  }

  /** Reads one text; null, after stepping over it, when it is not of the set. */
  read(reader: MsgpackReader): T | null {
    const length = reader.textHeader();
    if (reader.fault !== null) return null;
    if (length > reader.end - reader.at) {
      reader.fault = "truncated";
      return null;
    }
    const start = reader.at;
    reader.at += length;
    const entries = this.#entries[length];
    if (entries === undefined) return null;
    for (let index = 0; index < entries.length; index++) {
      const entry = entries[index]!;
      if (sameBytes(entry.bytes, reader.bytes, start)) return entry.text;
    }
    return null;
  }
}

function sameBytes(expected: Uint8Array, bytes: Uint8Array, start: number): boolean {
  // From the end: names of one length differ there first.
  for (let index = expected.length - 1; index >= 0; index--) {
    if (expected[index] !== bytes[start + index]) return false;
  }
  return true;
}
