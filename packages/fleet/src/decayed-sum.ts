/** A sum whose parts fade with a half-life: how much work a worker got lately. */
export class DecayedSum {
  readonly #halfLifeMs: number;
  #value = 0;
  #atMs = 0;

  constructor(halfLifeMs: number) {
    this.#halfLifeMs = halfLifeMs;
  }

  add(amount: number, nowMs: number): void {
    this.#value = this.at(nowMs) + amount;
    this.#atMs = nowMs;
  }

  /** Reads without changing anything. */
  at(nowMs: number): number {
    return this.#value * 0.5 ** (Math.max(0, nowMs - this.#atMs) / this.#halfLifeMs);
  }
}
