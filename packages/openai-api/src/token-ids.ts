import { skipSpace } from "./json-skip.ts";

export interface TokenIds {
  readonly ids: Uint32Array;
  /** After the closing bracket. */
  readonly end: number;
}

export interface TokenIdFault {
  /** Place in the list. */
  readonly index: number;
  readonly message: string;
}

export function isTokenIdFault(read: TokenIds | TokenIdFault): read is TokenIdFault {
  return "index" in read;
}

const idMax = 0xffff_ffff;
const comma = 0x2c;
const close = 0x5d;

/**
 * Token ids of the JSON array that opens at `from`, straight from the bytes: a tree of 100,000
 * numbers costs several times as much. Ids are integers from 0 to 2^32 - 1, at least one.
 */
export function readTokenIds(bytes: Uint8Array, from: number): TokenIds | TokenIdFault {
  const end = bytes.indexOf(close, from);
  // Every id takes two bytes or more, with the comma or bracket after it.
  const ids = new Uint32Array(Math.max(0, end - from) >> 1);
  let count = 0;
  let at = skipSpace(bytes, from + 1);
  if (at === end) return { index: 0, message: "a list of token ids must not be empty" };
  while (at < end) {
    const start = at;
    let id = 0;
    let digit = bytes[at]! - 0x30;
    while (digit >= 0 && digit <= 9) {
      id = id * 10 + digit;
      digit = bytes[++at]! - 0x30;
    }
    const digits = at - start;
    if (digits === 0 || digits > 10 || id > idMax || (digits > 1 && bytes[start] === 0x30)) break;
    ids[count] = id;
    if (bytes[at] !== comma && bytes[at] !== close) at = skipSpace(bytes, at);
    if (at === end) return { ids: ids.slice(0, count + 1), end: end + 1 };
    if (bytes[at] !== comma) break;
    count++;
    at++;
    if (bytes[at]! <= 0x20) at = skipSpace(bytes, at);
  }
  return { index: count, message: "expected token ids, integers from 0 to 4294967295" };
}
