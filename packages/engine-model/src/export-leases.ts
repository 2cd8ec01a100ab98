interface Export {
  readonly blocks: readonly number[];
  deadlineMs: number;
}

/**
 * Prefilled blocks that wait for a decode engine, each under a lease. A completion notice or the
 * deadline gives the blocks back, exactly once.
 */
export class ExportLeases {
  readonly #exports = new Map<string, Export>();

  /** Blocks under lease; one that two exports share counts twice. */
  get blocksHeld(): number {
    let blocks = 0;
    for (const entry of this.#exports.values()) blocks += entry.blocks.length;
    return blocks;
  }

  get size(): number {
    return this.#exports.size;
  }

  add(id: string, blocks: readonly number[], deadlineMs: number): void {
    this.#exports.set(id, { blocks, deadlineMs });
  }

  /** A heartbeat never shortens a lease; an unknown id is ignored. */
  extend(id: string, deadlineMs: number): void {
    const entry = this.#exports.get(id);
    if (entry !== undefined) entry.deadlineMs = Math.max(entry.deadlineMs, deadlineMs);
  }

  /** The blocks to free; null when the id is unknown, expired or already released. */
  release(id: string): readonly number[] | null {
    const entry = this.#exports.get(id);
    this.#exports.delete(id);
    return entry?.blocks ?? null;
  }

  nextDeadlineMs(): number | null {
    let next: number | null = null;
    for (const { deadlineMs } of this.#exports.values()) {
      if (next === null || deadlineMs < next) next = deadlineMs;
    }
    return next;
  }

  /** Takes out what is due at `nowMs`. */
  expire(nowMs: number): readonly { readonly id: string; readonly blocks: readonly number[] }[] {
    const due: { id: string; blocks: readonly number[] }[] = [];
    for (const [id, { blocks, deadlineMs }] of this.#exports) {
      if (deadlineMs > nowMs) continue;
      due.push({ id, blocks });
      this.#exports.delete(id);
    }
    return due;
  }
}
