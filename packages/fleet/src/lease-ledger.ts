import { invariant } from "@baton/kit";

/** A hold on a worker's capacity by one attempt of one request. */
export interface LoadLease {
  /** Request id and attempt. */
  readonly key: string;
  /** `workerKey` of the incarnation that it is on. */
  readonly worker: string;
  /** Process life of the frontend that answers for it. */
  readonly owner: string;
  /** It ends here even if nobody says so. */
  readonly deadlineMs: number;
}

/**
 * Leases by worker, in the order they were granted. Each ends exactly once: by `release`, with its
 * worker, with its owner, or at its deadline.
 */
export class LeaseLedger<L extends LoadLease> {
  readonly #byKey = new Map<string, L>();
  readonly #byWorker = new Map<string, Map<string, L>>();

  get size(): number {
    return this.#byKey.size;
  }

  get(key: string): L | undefined {
    return this.#byKey.get(key);
  }

  grant(lease: L): void {
    invariant(!this.#byKey.has(lease.key), `lease ${lease.key} is granted twice`);
    this.#byKey.set(lease.key, lease);
    const ofWorker = this.#byWorker.get(lease.worker) ?? new Map<string, L>();
    this.#byWorker.set(lease.worker, ofWorker.set(lease.key, lease));
  }

  /** The lease that ended, or undefined when it had ended before (late messages are normal). */
  release(key: string): L | undefined {
    const lease = this.#byKey.get(key);
    if (lease === undefined) return undefined;
    this.#byKey.delete(key);
    const ofWorker = this.#byWorker.get(lease.worker);
    ofWorker?.delete(key);
    if (ofWorker?.size === 0) this.#byWorker.delete(lease.worker);
    return lease;
  }

  /** Oldest first. */
  onWorker(worker: string): Iterable<L> {
    return this.#byWorker.get(worker)?.values() ?? [];
  }

  countOnWorker(worker: string): number {
    return this.#byWorker.get(worker)?.size ?? 0;
  }

  releaseWorker(worker: string): L[] {
    return this.#releaseAll([...this.onWorker(worker)]);
  }

  releaseOwner(owner: string): L[] {
    return this.#releaseAll([...this.#byKey.values()].filter((lease) => lease.owner === owner));
  }

  releaseOverdue(nowMs: number): L[] {
    return this.#releaseAll([...this.#byKey.values()].filter((each) => each.deadlineMs <= nowMs));
  }

  #releaseAll(leases: L[]): L[] {
    for (const lease of leases) this.release(lease.key);
    return leases;
  }
}
