/** A sample counts within these bounds of the profile: one absurd completion must not run away. */
const ratioMin = 1 / 64;
const ratioMax = 64;
/** How many full samples the prior is worth. */
const priorWeight = 2;
/** Work of this length counts half: short work is mostly fixed cost, and says little of the rate. */
const halfWeightMs = 50;

/**
 * How much slower (>1) or faster (<1) than its profile a worker is: the weighted geometric mean of
 * actual ÷ profile over its completions, shrunk to a prior. Samples fade with a half-life, so a worker
 * that was slow once (a first request that compiles) and gets no work since drifts back to the prior and
 * is tried again.
 */
export class LearntRate {
  readonly #halfLifeMs: number;
  #logSum = 0;
  #weightSum = 0;
  #atMs = 0;

  constructor(halfLifeMs: number) {
    this.#halfLifeMs = halfLifeMs;
  }

  /** `prior`: what is believed without samples, e.g. the rate of the pool. */
  factor(nowMs: number, prior = 1): number {
    const keep = this.#keep(nowMs);
    const logSum = this.#logSum * keep + Math.log(prior) * priorWeight;
    return Math.exp(logSum / (this.#weightSum * keep + priorWeight));
  }

  /** A completion that took `actualMs` where the profile said `profileMs`. Not positive: ignored. */
  learn(sample: { readonly actualMs: number; readonly profileMs: number }, nowMs: number): void {
    if (!(sample.actualMs > 0) || !(sample.profileMs > 0)) return;
    const ratio = Math.min(ratioMax, Math.max(ratioMin, sample.actualMs / sample.profileMs));
    const weight = sample.profileMs / (sample.profileMs + halfWeightMs);
    const keep = this.#keep(nowMs);
    this.#logSum = this.#logSum * keep + Math.log(ratio) * weight;
    this.#weightSum = this.#weightSum * keep + weight;
    this.#atMs = nowMs;
  }

  #keep(nowMs: number): number {
    return 0.5 ** (Math.max(0, nowMs - this.#atMs) / this.#halfLifeMs);
  }
}
