import { invariant } from "./invariant.ts";

/** Keeps the newest `capacity` items; the oldest is overwritten. */
export class Ring<T> {
  readonly #items: T[] = [];
  readonly #capacity: number;
  #next = 0;

  constructor(capacity: number) {
    invariant(capacity > 0, "a ring holds at least one item");
    this.#capacity = capacity;
  }

  get size(): number {
    return this.#items.length;
  }

  push(item: T): T | undefined {
    const dropped = this.#items.length === this.#capacity ? this.#items[this.#next] : undefined;
    this.#items[this.#next] = item;
    this.#next = (this.#next + 1) % this.#capacity;
    return dropped;
  }

  /** Newest first. */
  *newestFirst(): Generator<T> {
    for (let step = 1; step <= this.#items.length; step++) {
      yield this.#items[(this.#next - step + this.#capacity) % this.#capacity]!;
    }
  }
}
