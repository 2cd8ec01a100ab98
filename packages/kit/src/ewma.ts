/**
 * Mean that forgets with a half-life in time, not in samples, so that bursts do not dominate.
 * Time is an argument; a sample older than the newest one is dropped.
 */
export class Ewma {
  readonly #halfLifeMs: number;
  #value: number | null = null;
  #atMs = Number.NEGATIVE_INFINITY;

  constructor(halfLifeMs: number) {
    this.#halfLifeMs = halfLifeMs;
  }

  add(sample: number, nowMs: number): void {
    if (nowMs < this.#atMs) return;
    if (this.#value === null) this.#value = sample;
    else {
      // At least a tenth moves per sample: samples that share a millisecond still count.
      const keep = Math.min(0.9, 0.5 ** ((nowMs - this.#atMs) / this.#halfLifeMs));
      this.#value = this.#value * keep + sample * (1 - keep);
    }
    this.#atMs = nowMs;
  }

  /** Null until the first sample: unknown is not zero. */
  get value(): number | null {
    return this.#value;
  }
}
