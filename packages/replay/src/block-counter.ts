import { type HashList, invariant } from "@baton/kit";

const slotsMin = 1_024;

/**
 * Two counts per 64-bit block hash, in open-addressed typed arrays: 16 bytes a slot, half of them
 * used at least. Counts are signed, so that a difference can be built up in two steps.
 */
export class BlockCounter {
  #keys = new Uint32Array(2 * slotsMin);
  /** Prompts that hold the block; 0: the slot is free. */
  #rows = new Int32Array(slotsMin);
  #computed = new Int32Array(slotsMin);
  #size = 0;

  /**
   * Adds one prompt's whole blocks; returns how many were there before. Hashes are chained, so these
   * are its first ones.
   */
  addPrompt(hashes: HashList): number {
    let known = 0;
    const count = hashes.length / 2;
    for (let block = 0; block < count; block++) {
      if ((this.#size + 1) * 2 > this.#rows.length) this.#grow();
      const low = hashes[2 * block]!;
      const high = hashes[2 * block + 1]!;
      const slot = slotOf(this.#keys, this.#rows, low, high);
      if (this.#rows[slot] === 0) {
        this.#keys[2 * slot] = low;
        this.#keys[2 * slot + 1] = high;
        this.#size++;
      } else known++;
      this.#rows[slot]!++;
    }
    return known;
  }

  /** Notes how often an engine computed a block; one that no prompt holds is ignored. */
  addComputed(low: number, high: number, times: number): void {
    const slot = slotOf(this.#keys, this.#rows, low, high);
    if (this.#rows[slot] !== 0) this.#computed[slot]! += times;
  }

  /** Blocks of two or more prompts, and how often these were computed in sum. */
  shared(): { readonly blocks: number; readonly computed: number } {
    let blocks = 0;
    let computed = 0;
    for (let slot = 0; slot < this.#rows.length; slot++) {
      if (this.#rows[slot]! < 2) continue;
      blocks++;
      computed += this.#computed[slot]!;
    }
    return { blocks, computed };
  }

  #grow(): void {
    const slots = this.#rows.length * 2;
    invariant(slots <= 2 ** 30, "a replay has fewer than half a billion distinct blocks");
    const keys = new Uint32Array(2 * slots);
    const rows = new Int32Array(slots);
    const computed = new Int32Array(slots);
    for (let old = 0; old < this.#rows.length; old++) {
      if (this.#rows[old] === 0) continue;
      const slot = slotOf(keys, rows, this.#keys[2 * old]!, this.#keys[2 * old + 1]!);
      keys[2 * slot] = this.#keys[2 * old]!;
      keys[2 * slot + 1] = this.#keys[2 * old + 1]!;
      rows[slot] = this.#rows[old]!;
      computed[slot] = this.#computed[old]!;
    }
    this.#keys = keys;
    this.#rows = rows;
    this.#computed = computed;
  }
}

/** Slot of the hash, or the free one where it would go. The hashes are well mixed already. */
function slotOf(keys: Uint32Array, rows: Int32Array, low: number, high: number): number {
  const mask = rows.length - 1;
  let slot = (low ^ high) & mask;
  while (rows[slot] !== 0 && (keys[2 * slot] !== low || keys[2 * slot + 1] !== high)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}
