import type { HashList } from "@baton/kit";

const recordBytes = 12;
const startSlots = 1024;

/** How often each 64-bit hash was added: open addressing in typed arrays, 12 bytes a slot. */
export class HashCounter {
  #slots = startSlots;
  #words = new Uint32Array(2 * startSlots);
  #counts = new Uint32Array(startSlots);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Adds hashes [from, to) of the list. */
  add(hashes: HashList, from: number, to: number): void {
    for (let at = from; at < to; at++) {
      if (2 * this.#size >= this.#slots) this.#grow();
      this.#count(hashes[2 * at]!, hashes[2 * at + 1]!, 1);
    }
  }

  /** Records of 12 bytes, little-endian: u64 hash, u32 count. In no particular order. */
  toBytes(): Buffer {
    const bytes = Buffer.allocUnsafe(this.#size * recordBytes);
    let end = 0;
    for (let slot = 0; slot < this.#slots; slot++) {
      if (this.#counts[slot] === 0) continue;
      bytes.writeUInt32LE(this.#words[2 * slot]!, end);
      bytes.writeUInt32LE(this.#words[2 * slot + 1]!, end + 4);
      bytes.writeUInt32LE(this.#counts[slot]!, end + 8);
      end += recordBytes;
    }
    return bytes;
  }

  #count(low: number, high: number, times: number): void {
    let slot = low & (this.#slots - 1);
    while (
      this.#counts[slot] !== 0 &&
      (this.#words[2 * slot] !== low || this.#words[2 * slot + 1] !== high)
    ) {
      slot = (slot + 1) & (this.#slots - 1);
    }
    if (this.#counts[slot] === 0) {
      this.#words[2 * slot] = low;
      this.#words[2 * slot + 1] = high;
      this.#size++;
    }
    this.#counts[slot]! += times;
  }

  #grow(): void {
    const words = this.#words;
    const counts = this.#counts;
    this.#slots *= 2;
    this.#words = new Uint32Array(2 * this.#slots);
    this.#counts = new Uint32Array(this.#slots);
    this.#size = 0;
    for (let slot = 0; slot < counts.length; slot++) {
      if (counts[slot] !== 0) this.#count(words[2 * slot]!, words[2 * slot + 1]!, counts[slot]!);
    }
  }
}
