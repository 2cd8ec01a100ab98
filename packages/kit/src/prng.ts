/**
 * Seeded generator (sfc32, Chris Doty-Humphrey's PractRand): same seed, same sequence, on every
 * machine. Not for secrets.
 */
export class Prng {
  #a: number;
  #b: number;
  #c: number;
  #counter: number;

  constructor(seed: number) {
    this.#a = seed >>> 0;
    this.#b = Math.floor(seed / 0x1_0000_0000) >>> 0;
    this.#c = 0x9e37_79b9;
    this.#counter = 1;
    // The author's advice: discard the first outputs so that near seeds diverge.
    for (let round = 0; round < 12; round++) this.nextUint32();
  }

  nextUint32(): number {
    const sum = (((this.#a + this.#b) | 0) + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (this.#c << 21) | (this.#c >>> 11);
    this.#c = (this.#c + sum) | 0;
    return sum >>> 0;
  }

  /** Uniform in [0, 1). */
  next(): number {
    return this.nextUint32() / 0x1_0000_0000;
  }

  /** Uniform integer in [0, bound). `bound` is a positive integer up to 2^32. */
  below(bound: number): number {
    return Math.floor(this.next() * bound);
  }

  /** Lower-case hex id of `length` digits. */
  hex(length: number): string {
    let text = "";
    while (text.length < length) text += this.nextUint32().toString(16).padStart(8, "0");
    return text.slice(0, length);
  }
}
