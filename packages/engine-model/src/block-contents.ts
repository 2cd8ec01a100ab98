import { advanceContent, contentRoot, spoilContent } from "./content-digest.ts";

/** Words per block in what travels between engines: state before the block, state after it. */
export const contentWordsPerBlock = 4;

/**
 * What each physical block holds, as digests. Freeing a block does not change it: a late reader
 * gets what lies there now, right or wrong, as from GPU memory.
 */
export class BlockContents {
  readonly #words: Uint32Array;

  constructor(blocks: number) {
    this.#words = new Uint32Array(blocks * contentWordsPerBlock);
  }

  /** Starts `block` anew behind `before`, the block in front of it; 0 at the start of a prompt. */
  begin(block: number, before: number): void {
    const at = block * contentWordsPerBlock;
    const low = before === 0 ? contentRoot[0] : this.#words[before * contentWordsPerBlock + 2]!;
    const high = before === 0 ? contentRoot[1] : this.#words[before * contentWordsPerBlock + 3]!;
    this.#words[at] = low;
    this.#words[at + 1] = high;
    this.#words[at + 2] = low;
    this.#words[at + 3] = high;
  }

  write(block: number, tokenIds: Uint32Array, from: number, to: number): void {
    const at = block * contentWordsPerBlock;
    advanceContent(this.#words.subarray(at + 2, at + 4), tokenIds, from, to);
  }

  /** Four words per block, in the order of `blocks`. */
  read(blocks: readonly number[]): Uint32Array {
    const words = new Uint32Array(blocks.length * contentWordsPerBlock);
    blocks.forEach((block, index) => {
      const at = block * contentWordsPerBlock;
      words.set(this.#words.subarray(at, at + contentWordsPerBlock), index * contentWordsPerBlock);
    });
    return words;
  }

  copyIn(block: number, words: Uint32Array, index: number): void {
    const from = index * contentWordsPerBlock;
    this.#words.set(
      words.subarray(from, from + contentWordsPerBlock),
      block * contentWordsPerBlock,
    );
  }

  /**
   * Digest of a whole prompt as attention sees it: the state after its last token, spoilt by every
   * place where a block does not continue the block before it.
   */
  digest(blocks: readonly number[]): Uint32Array {
    const words = this.#words;
    let low = contentRoot[0];
    let high = contentRoot[1];
    const digest = new Uint32Array(2);
    const breaks: number[] = [];
    blocks.forEach((block, index) => {
      const at = block * contentWordsPerBlock;
      if (words[at] !== low || words[at + 1] !== high) breaks.push(index, words[at]!, low);
      low = words[at + 2]!;
      high = words[at + 3]!;
    });
    digest[0] = low;
    digest[1] = high;
    for (let at = 0; at < breaks.length; at += 3) {
      spoilContent(digest, breaks[at]!, breaks[at + 1]!, breaks[at + 2]!);
    }
    return digest;
  }
}
