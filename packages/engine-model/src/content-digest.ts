/**
 * What stands in for the numbers inside KV: a 64-bit state that runs over the tokens, independent of
 * block size. Low word first. The KV of a token depends on all tokens before it, and so does this.
 */
export const contentRoot: readonly [number, number] = [0x6a09_e667, 0xbb67_ae85];

/** Advances `state` (two words, in place) over `tokenIds[from, to)`. About 2 ns a token. */
export function advanceContent(
  state: Uint32Array,
  tokenIds: Uint32Array,
  from: number,
  to: number,
): void {
  let low = state[0]! | 0;
  let high = state[1]! | 0;
  for (let at = from; at < to; at++) {
    low = Math.imul(low ^ tokenIds[at]!, 0xcc9e_2d51);
    low = (low << 15) | (low >>> 17);
    low = (Math.imul(low, 5) + high) | 0;
    high = Math.imul(high ^ low, 0x1b87_3593);
    high = (high << 13) | (high >>> 19);
  }
  state[0] = low;
  state[1] = high;
}

/** Folds three words into `state`; used where pieces that do not belong together meet. */
export function spoilContent(state: Uint32Array, a: number, b: number, c: number): void {
  advanceContent(state, Uint32Array.of(a, b, c), 0, 3);
}

/** MurmurHash3's finaliser over a state and an index: 32 well-mixed bits. */
export function contentWord(low: number, high: number, index: number): number {
  let word = Math.imul(low ^ Math.imul(index + 1, 0x9e37_79b9), 0x85eb_ca6b) ^ high;
  word ^= word >>> 16;
  word = Math.imul(word, 0x85eb_ca6b);
  word ^= word >>> 13;
  word = Math.imul(word, 0xc2b2_ae35);
  return (word ^ (word >>> 16)) >>> 0;
}
