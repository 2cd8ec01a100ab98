import type { HashList } from "@baton/kit";

/** Map keys of a hash list; copies only when the words are not 8-byte aligned. */
export function blockKeys(hashes: HashList): BigUint64Array {
  const aligned = hashes.byteOffset % 8 === 0 ? hashes : hashes.slice();
  return new BigUint64Array(aligned.buffer, aligned.byteOffset, aligned.length >>> 1);
}
