import type { HashList } from "@baton/kit";

/**
 * Block ids by engine hash; several blocks may carry one hash. Chained buckets in typed arrays:
 * about 20 bytes a block, no object per entry. Id 0 ends a chain.
 */
export class HashTable {
  readonly #buckets: Int32Array;
  readonly #next: Int32Array;
  readonly #hashes: Uint32Array;
  readonly #present: Uint8Array;
  readonly #mask: number;
  #size = 0;

  constructor(blocks: number) {
    const buckets = 2 ** Math.ceil(Math.log2(Math.max(2, blocks)));
    this.#mask = buckets - 1;
    this.#buckets = new Int32Array(buckets);
    this.#next = new Int32Array(blocks);
    this.#hashes = new Uint32Array(2 * blocks);
    this.#present = new Uint8Array(blocks);
  }

  get size(): number {
    return this.#size;
  }

  has(block: number): boolean {
    return this.#present[block] === 1;
  }

  hashOf(block: number): HashList {
    return this.#hashes.slice(2 * block, 2 * block + 2);
  }

  /** The block that got the hash first; 0 when none has it. */
  find(low: number, high: number): number {
    let block = this.#buckets[low & this.#mask]!;
    while (
      block !== 0 &&
      (this.#hashes[2 * block] !== low || this.#hashes[2 * block + 1] !== high)
    ) {
      block = this.#next[block]!;
    }
    return block;
  }

  /** `block` has no hash yet. Goes behind older blocks of the same hash. */
  add(block: number, low: number, high: number): void {
    this.#hashes[2 * block] = low;
    this.#hashes[2 * block + 1] = high;
    this.#present[block] = 1;
    this.#next[block] = 0;
    this.#size++;
    const bucket = low & this.#mask;
    let at = this.#buckets[bucket]!;
    if (at === 0) {
      this.#buckets[bucket] = block;
      return;
    }
    while (this.#next[at]! !== 0) at = this.#next[at]!;
    this.#next[at] = block;
  }

  remove(block: number): void {
    const bucket = this.#hashes[2 * block]! & this.#mask;
    if (this.#buckets[bucket] === block) this.#buckets[bucket] = this.#next[block]!;
    else {
      let at = this.#buckets[bucket]!;
      while (this.#next[at]! !== block) at = this.#next[at]!;
      this.#next[at] = this.#next[block]!;
    }
    this.#present[block] = 0;
    this.#size--;
  }

  clear(): void {
    this.#buckets.fill(0);
    this.#present.fill(0);
    this.#size = 0;
  }
}
