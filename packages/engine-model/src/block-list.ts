/**
 * Doubly linked list of block ids in typed arrays: the free blocks of a cache, the next one to hand
 * out first. Id 0 is the list's own anchor, so it is never a member.
 */
export class BlockList {
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  #size = 0;

  /** Starts with 1 … blocks-1 in order. */
  constructor(blocks: number) {
    this.#next = new Int32Array(blocks);
    this.#previous = new Int32Array(blocks);
    for (let block = 1; block < blocks; block++) this.append(block);
  }

  get size(): number {
    return this.#size;
  }

  append(block: number): void {
    this.#insert(block, this.#previous[0]!, 0);
  }

  prepend(block: number): void {
    this.#insert(block, 0, this.#next[0]!);
  }

  remove(block: number): void {
    const before = this.#previous[block]!;
    const after = this.#next[block]!;
    this.#next[before] = after;
    this.#previous[after] = before;
    this.#size--;
  }

  /** First block; 0 when empty. */
  first(): number {
    return this.#next[0]!;
  }

  *[Symbol.iterator](): Generator<number> {
    for (let block = this.#next[0]!; block !== 0; block = this.#next[block]!) yield block;
  }

  #insert(block: number, before: number, after: number): void {
    this.#next[before] = block;
    this.#previous[block] = before;
    this.#next[block] = after;
    this.#previous[after] = block;
    this.#size++;
  }
}
