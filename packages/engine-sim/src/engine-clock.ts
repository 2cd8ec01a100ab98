/**
 * Maps wall time to the model's time line: it starts at 0 and runs `speed` times as fast. Timers
 * aim at model times, so what a late timer loses one step does not cost the next.
 */
export class EngineClock {
  readonly speed: number;
  readonly #startMs = performance.now();
  readonly #startWallMs = Date.now();

  constructor(speed: number) {
    this.speed = speed;
  }

  /** Model ms. */
  nowMs(): number {
    return (performance.now() - this.#startMs) * this.speed;
  }

  /** Wall ms from now until a model time; negative when it has passed. */
  untilMs(modelMs: number): number {
    return modelMs / this.speed - (performance.now() - this.#startMs);
  }

  /** Seconds since the epoch of a model time. */
  wallS(modelMs: number): number {
    return (this.#startWallMs + modelMs / this.speed) / 1000;
  }
}
