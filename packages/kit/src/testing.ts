/** A clock that stands still until a test moves it. */
export class ManualClock {
  #nowMs: number;

  constructor(startMs = 1_000_000) {
    this.#nowMs = startMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return 1_700_000_000_000 + this.#nowMs;
  }

  advance(byMs: number): void {
    this.#nowMs += byMs;
  }
}
