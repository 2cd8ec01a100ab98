/** At most `max` holders at once; the others wait in the order they came. */
export class ReplaySlots {
  #free: number;
  readonly #waiting: { readonly start: () => void }[] = [];

  constructor(max: number) {
    this.#free = max;
  }

  /**
   * Calls `start` now or later. The result gives up the wait or the slot; it may be called twice.
   */
  take(start: () => void): () => void {
    const ticket = { start };
    if (this.#free > 0) {
      this.#free -= 1;
      start();
    } else this.#waiting.push(ticket);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const place = this.#waiting.indexOf(ticket);
      if (place >= 0) this.#waiting.splice(place, 1);
      else this.#release();
    };
  }

  #release(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next.start();
  }
}
