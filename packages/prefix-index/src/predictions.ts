import { invariant } from "@baton/kit";

export interface Prediction {
  readonly worker: string;
  /** When the block is expected to be there. */
  readonly etaMs: number;
  readonly expiresMs: number;
}

interface Assumed {
  readonly worker: string;
  readonly keys: BigUint64Array;
  readonly expiresMs: number;
}

/**
 * Which blocks will lie where: assumed by a placement, then confirmed by an event (per block),
 * forgotten on a failure, or expired. Kept apart from facts.
 */
export class Predictions {
  readonly #byBlock = new Map<bigint, Map<string, Prediction>>();
  readonly #byAttempt = new Map<string, Assumed>();

  get attemptCount(): number {
    return this.#byAttempt.size;
  }

  /** `attempt` is assumed once; etaMs and expiresMs on the caller's clock. O(blocks). */
  assume(
    attempt: string,
    worker: string,
    keys: BigUint64Array,
    etaMs: number,
    expiresMs: number,
  ): void {
    invariant(!this.#byAttempt.has(attempt), `attempt ${attempt} is assumed twice`);
    this.#byAttempt.set(attempt, { worker, keys, expiresMs });
    for (const key of keys) {
      const block = this.#byBlock.get(key) ?? new Map<string, Prediction>();
      this.#byBlock.set(key, block);
      const earlier = block.get(worker);
      // The first leader brings the block; a follower on the same worker does not delay it.
      if (earlier !== undefined && earlier.etaMs <= etaMs && earlier.expiresMs >= expiresMs)
        continue;
      block.set(worker, { worker, etaMs, expiresMs });
    }
  }

  at(key: bigint, worker: string, nowMs: number): Prediction | null {
    const found = this.#byBlock.get(key)?.get(worker);
    return found !== undefined && found.expiresMs > nowMs ? found : null;
  }

  workersAt(key: bigint): Iterable<string> {
    return this.#byBlock.get(key)?.keys() ?? [];
  }

  confirm(worker: string, keys: BigUint64Array): void {
    for (const key of keys) this.#delete(key, worker);
  }

  /** Withdraws what the attempt assumed. Unknown attempts are fine: they were confirmed or expired. */
  forget(attempt: string): void {
    const assumed = this.#byAttempt.get(attempt);
    if (assumed === undefined) return;
    this.#byAttempt.delete(attempt);
    const others = [...this.#byAttempt.values()].filter((each) => each.worker === assumed.worker);
    const stillAssumed = new Set<bigint>();
    for (const each of others) for (const key of each.keys) stillAssumed.add(key);
    for (const key of assumed.keys) {
      if (!stillAssumed.has(key)) this.#delete(key, assumed.worker);
    }
  }

  /** The prefill ended well: its events confirm block by block, or the TTL ends it. */
  settle(attempt: string): void {
    this.#byAttempt.delete(attempt);
  }

  dropWorker(worker: string): void {
    for (const [attempt, assumed] of this.#byAttempt) {
      if (assumed.worker === worker) this.#byAttempt.delete(attempt);
    }
    for (const [key, block] of this.#byBlock) {
      if (block.delete(worker) && block.size === 0) this.#byBlock.delete(key);
    }
  }

  expire(nowMs: number): void {
    for (const [attempt, assumed] of this.#byAttempt) {
      if (assumed.expiresMs <= nowMs) this.#byAttempt.delete(attempt);
    }
    for (const [key, block] of this.#byBlock) {
      for (const [worker, prediction] of block) {
        if (prediction.expiresMs <= nowMs) this.#delete(key, worker);
      }
    }
  }

  #delete(key: bigint, worker: string): void {
    const block = this.#byBlock.get(key);
    if (block?.delete(worker) && block.size === 0) this.#byBlock.delete(key);
  }
}
