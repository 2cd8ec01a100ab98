import type { HashList } from "@baton/kit";
import { hashesPerEventMax, tokensPerEventMax } from "./limits.ts";
import type { MsgpackReader } from "./msgpack-reader.ts";

/** An array of hashes in any form, or nil, which reads as none. */
export function readHashes(reader: MsgpackReader): HashList {
  const count = reader.takeNil() ? 0 : boundedArray(reader, hashesPerEventMax);
  const hashes = new Uint32Array(2 * count);
  for (let index = 0; index < count && reader.fault === null; index++) {
    readHash(reader, hashes, index);
  }
  return hashes;
}

/** One hash; null when it is nil or the integer 0, which an llm-d simulator sends for the root. */
export function readParentHash(reader: MsgpackReader): HashList | null {
  if (reader.takeNil()) return null;
  const isInteger = reader.isInteger();
  const hash = new Uint32Array(2);
  readHash(reader, hash, 0);
  return isInteger && hash[0] === 0 && hash[1] === 0 ? null : hash;
}

/**
 * Integers of any width and sign by their 64 bits; byte strings by their last 8 bytes, big-endian,
 * which is the integer that the same vLLM would send for the same block.
 */
function readHash(reader: MsgpackReader, hashes: HashList, index: number): void {
  if (!reader.isBinary()) {
    reader.integer();
    hashes[2 * index] = reader.low;
    hashes[2 * index + 1] = reader.high;
    return;
  }
  const bytes = reader.binary();
  if (bytes.length === 0) reader.fault ??= "type";
  let low = 0;
  let high = 0;
  for (let at = Math.max(0, bytes.length - 8); at < bytes.length; at++) {
    high = (high << 8) | (low >>> 24);
    low = (low << 8) | bytes[at]!;
  }
  hashes[2 * index] = low;
  hashes[2 * index + 1] = high;
}

/** Token ids, or nil, which reads as none. Of the pairs that EAGLE workers send, the first ones. */
export function readTokens(reader: MsgpackReader): Uint32Array {
  const count = reader.takeNil() ? 0 : boundedArray(reader, tokensPerEventMax);
  const tokens = new Uint32Array(count);
  const bytes = reader.bytes;
  let at = reader.at;
  for (let index = 0; index < count; index++) {
    const byte = bytes[at]!;
    if (byte <= 0x7f) {
      tokens[index] = byte;
      at += 1;
    } else if (byte === 0xcd) {
      tokens[index] = (bytes[at + 1]! << 8) | bytes[at + 2]!;
      at += 3;
    } else if (byte === 0xce) {
      tokens[index] =
        (bytes[at + 1]! << 24) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 8) | bytes[at + 4]!;
      at += 5;
    } else {
      reader.at = Math.min(at, reader.end);
      tokens[index] = readRareToken(reader);
      at = reader.at;
      if (reader.fault !== null) return tokens;
    }
  }
  // The fast branches read past the end as zeros; one check here replaces one per token.
  if (at > reader.end) reader.fault ??= "truncated";
  reader.at = Math.min(at, reader.end);
  return tokens;
}

function readRareToken(reader: MsgpackReader): number {
  if (!reader.isArray()) return reader.uint32();
  const size = reader.arrayHeader();
  if (size === 0) reader.fault ??= "type";
  const token = reader.uint32();
  for (let extra = 1; extra < size && reader.fault === null; extra++) reader.skip();
  return token;
}

/** Each element takes a byte at least, so a count beyond the bytes left is refused unallocated. */
function boundedArray(reader: MsgpackReader, max: number): number {
  const count = reader.arrayHeader();
  if (count > reader.end - reader.at) reader.fault ??= "truncated";
  else if (count > max) reader.fault ??= "too_large";
  return reader.fault === null ? count : 0;
}
