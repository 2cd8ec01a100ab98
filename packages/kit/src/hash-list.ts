import { invariant } from "./invariant.ts";

/**
 * 64-bit hashes without BigInt: two unsigned 32-bit words per hash, low word first.
 * `list.length === 2 * count`. On the wire the same words as little-endian bytes, 8 per hash.
 */
export type HashList = Uint32Array;

export function hashCount(list: HashList): number {
  return list.length >>> 1;
}

/** 16 lower-case hex digits, most significant first; for logs, keys of rare maps and tests. */
export function hashHex(list: HashList, index: number): string {
  const low = list[2 * index]!.toString(16).padStart(8, "0");
  const high = list[2 * index + 1]!.toString(16).padStart(8, "0");
  return high + low;
}

export function hashToBigInt(list: HashList, index: number): bigint {
  return (BigInt(list[2 * index + 1]!) << 32n) | BigInt(list[2 * index]!);
}

/** Signed and unsigned 64-bit values of the same bits give the same hash. */
export function hashFromBigInt(...values: readonly bigint[]): HashList {
  const list = new Uint32Array(values.length * 2);
  values.forEach((value, index) => {
    const bits = BigInt.asUintN(64, value);
    list[2 * index] = Number(bits & 0xffff_ffffn);
    list[2 * index + 1] = Number(bits >> 32n);
  });
  return list;
}

/** Copies; `bytes` may be unaligned. Throws when the length is not a multiple of 8. */
export function hashListFromBytes(bytes: Uint8Array): HashList {
  invariant(bytes.length % 8 === 0, `hash bytes come in eights, got ${bytes.length}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const list = new Uint32Array(bytes.length / 4);
  for (let word = 0; word < list.length; word++) list[word] = view.getUint32(word * 4, true);
  return list;
}

export function hashListToBytes(list: HashList): Uint8Array {
  const bytes = new Uint8Array(list.length * 4);
  const view = new DataView(bytes.buffer);
  for (let word = 0; word < list.length; word++) view.setUint32(word * 4, list[word]!, true);
  return bytes;
}
