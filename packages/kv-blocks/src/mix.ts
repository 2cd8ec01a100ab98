/**
 * The block function of MurmurHash3_x86_128 (Austin Appleby, public domain) over 32-bit words, in
 * place on `state` = four 32-bit lanes. Chosen since it needs only 32-bit multiplications: no BigInt
 * and no WebAssembly, 3 ns a token. It is not a keyed hash: whoever can choose prompts could make
 * two prompts collide, and would win a worse placement of their own request, nothing else.
 */
export function mixWords(state: Uint32Array, words: Uint32Array, start: number, end: number): void {
  let h1 = state[0]! | 0;
  let h2 = state[1]! | 0;
  let h3 = state[2]! | 0;
  let h4 = state[3]! | 0;
  for (let at = start; at < end; at += 4) {
    // Words beyond the end count as 0; the length goes into the final mix, so nothing is lost.
    let k1 = words[at]! | 0;
    let k2 = at + 1 < end ? words[at + 1]! | 0 : 0;
    let k3 = at + 2 < end ? words[at + 2]! | 0 : 0;
    let k4 = at + 3 < end ? words[at + 3]! | 0 : 0;
    k1 = Math.imul(k1, 0x239b961b);
    k1 = Math.imul((k1 << 15) | (k1 >>> 17), 0xab0e9789);
    h1 ^= k1;
    h1 = (((h1 << 19) | (h1 >>> 13)) + h2) | 0;
    h1 = (Math.imul(h1, 5) + 0x561ccd1b) | 0;
    k2 = Math.imul(k2, 0xab0e9789);
    k2 = Math.imul((k2 << 16) | (k2 >>> 16), 0x38b34ae5);
    h2 ^= k2;
    h2 = (((h2 << 17) | (h2 >>> 15)) + h3) | 0;
    h2 = (Math.imul(h2, 5) + 0x0bcaa747) | 0;
    k3 = Math.imul(k3, 0x38b34ae5);
    k3 = Math.imul((k3 << 17) | (k3 >>> 15), 0xa1e38b93);
    h3 ^= k3;
    h3 = (((h3 << 15) | (h3 >>> 17)) + h4) | 0;
    h3 = (Math.imul(h3, 5) + 0x96cd1c35) | 0;
    k4 = Math.imul(k4, 0xa1e38b93);
    k4 = Math.imul((k4 << 18) | (k4 >>> 14), 0x239b961b);
    h4 ^= k4;
    h4 = (((h4 << 13) | (h4 >>> 19)) + h1) | 0;
    h4 = (Math.imul(h4, 5) + 0x32ac3b17) | 0;
  }
  state[0] = h1;
  state[1] = h2;
  state[2] = h3;
  state[3] = h4;
}

/** The algorithm's final avalanche over all four lanes. */
export function finishMix(state: Uint32Array, lengthBytes: number): void {
  let h1 = state[0]! ^ lengthBytes;
  let h2 = state[1]! ^ lengthBytes;
  let h3 = state[2]! ^ lengthBytes;
  let h4 = state[3]! ^ lengthBytes;
  h1 = (h1 + h2 + h3 + h4) | 0;
  h2 = (h2 + h1) | 0;
  h3 = (h3 + h1) | 0;
  h4 = (h4 + h1) | 0;
  h1 = avalanche(h1);
  h2 = avalanche(h2);
  h3 = avalanche(h3);
  h4 = avalanche(h4);
  h1 = (h1 + h2 + h3 + h4) | 0;
  state[0] = h1;
  state[1] = (h2 + h1) | 0;
  state[2] = (h3 + h1) | 0;
  state[3] = (h4 + h1) | 0;
}

function avalanche(lane: number): number {
  let h = lane ^ (lane >>> 16);
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  return h ^ (h >>> 16);
}
