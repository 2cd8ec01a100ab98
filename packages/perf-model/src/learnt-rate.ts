import { Ewma } from "@baton/kit";

/** One worker's rate moves within these bounds of its profile, so that one bad sample cannot run away. */
const factorMin = 1 / 64;
const factorMax = 64;

/**
 * How much slower (>1) or faster (<1) than its profile a worker really is, from completed work.
 * Until the first completion the profile alone counts (factor 1).
 */
export class LearntRate {
  readonly #factor: Ewma;

  /** `halfLifeMs`: how fast old completions are forgotten. */
  constructor(halfLifeMs: number) {
    this.#factor = new Ewma(halfLifeMs);
  }

  get factor(): number {
    return this.#factor.value ?? 1;
  }

  /** A completion that took `actualMs` where the profile said `profileMs`. Not positive: ignored. */
  learn(sample: { readonly actualMs: number; readonly profileMs: number }, nowMs: number): void {
    if (!(sample.actualMs > 0) || !(sample.profileMs > 0)) return;
    const ratio = sample.actualMs / sample.profileMs;
    this.#factor.add(Math.min(factorMax, Math.max(factorMin, ratio)), nowMs);
  }
}
