/** Faults in a row before a worker is set aside. */
const faultsMax = 3;
const quarantineMsFirst = 2_000;
const quarantineMsMax = 60_000;

/**
 * Sets a worker aside that answers probes and fails requests. Only faults of the worker count:
 * a refused request (4xx), 429/503 and a client that left say nothing. After the time is up the
 * next requests try it again; one success closes the matter, one fault doubles the time.
 */
export class FaultGate {
  #faultsInRow = 0;
  #quarantineMs = 0;
  #untilMs = Number.NEGATIVE_INFINITY;

  fault(nowMs: number): void {
    this.#faultsInRow += 1;
    if (this.#faultsInRow < faultsMax || nowMs < this.#untilMs) return;
    this.#quarantineMs = Math.min(
      quarantineMsMax,
      this.#quarantineMs === 0 ? quarantineMsFirst : this.#quarantineMs * 2,
    );
    this.#untilMs = nowMs + this.#quarantineMs;
  }

  success(): void {
    this.#faultsInRow = 0;
    this.#quarantineMs = 0;
    this.#untilMs = Number.NEGATIVE_INFINITY;
  }

  isOpen(nowMs: number): boolean {
    return nowMs < this.#untilMs;
  }
}
