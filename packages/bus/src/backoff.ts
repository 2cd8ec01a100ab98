/**
 * Delay before the next attempt: doubles from `firstMs` up to `maxMs`, and each is drawn evenly
 * from the upper half of its range, so that clients of a restarted server spread out.
 */
export class Backoff {
  readonly #firstMs: number;
  readonly #maxMs: number;
  #attempts = 0;
  #delayMs: number;

  constructor(options: { readonly firstMs: number; readonly maxMs: number }) {
    this.#firstMs = options.firstMs;
    this.#maxMs = options.maxMs;
    this.#delayMs = this.#draw();
  }

  /** Stays the same until the next `failed` or `reset`. */
  get delayMs(): number {
    return this.#delayMs;
  }

  failed(): void {
    this.#attempts++;
    this.#delayMs = this.#draw();
  }

  reset(): void {
    this.#attempts = 0;
    this.#delayMs = this.#draw();
  }

  #draw(): number {
    const rangeMs = Math.min(this.#maxMs, this.#firstMs * 2 ** Math.min(this.#attempts, 30));
    return Math.ceil(rangeMs * (0.5 + Math.random() / 2));
  }
}
