import { DecayedSum, LeaseLedger, type LoadLease } from "@baton/fleet";
import { LearntRate } from "@baton/perf-model";

export interface PrefillLease extends LoadLease {
  readonly workerId: string;
  /** Service time by profile alone, and with what was learnt of the worker. */
  readonly profileMs: number;
  readonly predictedMs: number;
}

interface Pace {
  readonly rate: LearntRate;
  readonly recent: DecayedSum;
}

const rateHalfLifeMs = 60_000;
const recentHalfLifeMs = 60_000;

/** What each prefill worker has to do, and how fast it does it. Engines work in order of arrival. */
export class PrefillLoad {
  readonly leases = new LeaseLedger<PrefillLease>();
  readonly #paces = new Map<string, Pace>();
  /** Rate of all workers together: what is believed of one that was not measured lately. */
  readonly #poolRate = new LearntRate(rateHalfLifeMs);
  /** When the oldest lease of a worker came to the front. */
  readonly #headSinceMs = new Map<string, number>();

  grant(lease: PrefillLease, nowMs: number): void {
    if (this.leases.countOnWorker(lease.worker) === 0) this.#headSinceMs.set(lease.worker, nowMs);
    this.leases.grant(lease);
    this.#paceOf(lease.workerId).recent.add(lease.predictedMs, nowMs);
  }

  /** `isDone`: the prefill completed, so its time says how fast the worker is. */
  release(key: string, isDone: boolean, nowMs: number): PrefillLease | undefined {
    const lease = this.leases.get(key);
    if (lease === undefined) return undefined;
    const isHead = [...this.leases.onWorker(lease.worker)][0] === lease;
    this.leases.release(key);
    if (!isHead) return lease;
    const sinceMs = this.#headSinceMs.get(lease.worker) ?? nowMs;
    if (isDone) {
      const sample = { actualMs: nowMs - sinceMs, profileMs: lease.profileMs };
      this.#paceOf(lease.workerId).rate.learn(sample, nowMs);
      this.#poolRate.learn(sample, nowMs);
    }
    this.#settleHead(lease.worker, nowMs);
    return lease;
  }

  releaseWorker(worker: string): PrefillLease[] {
    this.#headSinceMs.delete(worker);
    return this.leases.releaseWorker(worker);
  }

  releaseOwner(owner: string, nowMs: number): PrefillLease[] {
    return this.#settleAll(this.leases.releaseOwner(owner), nowMs);
  }

  releaseOverdue(nowMs: number): PrefillLease[] {
    return this.#settleAll(this.leases.releaseOverdue(nowMs), nowMs);
  }

  /** Predicted time until the worker is through with what it has. */
  waitMs(worker: string, nowMs: number): number {
    let sumMs = 0;
    let headMs: number | null = null;
    for (const lease of this.leases.onWorker(worker)) {
      headMs ??= lease.predictedMs;
      sumMs += lease.predictedMs;
    }
    if (headMs === null) return 0;
    const elapsedMs = nowMs - (this.#headSinceMs.get(worker) ?? nowMs);
    return sumMs - Math.min(headMs, Math.max(0, elapsedMs));
  }

  rateFactor(workerId: string, nowMs: number): number {
    return this.#paceOf(workerId).rate.factor(nowMs, this.#poolRate.factor(nowMs));
  }

  recentMs(workerId: string, nowMs: number): number {
    return this.#paceOf(workerId).recent.at(nowMs);
  }

  #settleAll(leases: PrefillLease[], nowMs: number): PrefillLease[] {
    for (const worker of new Set(leases.map((each) => each.worker))) {
      this.#settleHead(worker, nowMs);
    }
    return leases;
  }

  #settleHead(worker: string, nowMs: number): void {
    if (this.leases.countOnWorker(worker) === 0) this.#headSinceMs.delete(worker);
    else this.#headSinceMs.set(worker, nowMs);
  }

  #paceOf(workerId: string): Pace {
    const found = this.#paces.get(workerId);
    if (found !== undefined) return found;
    const pace = {
      rate: new LearntRate(rateHalfLifeMs),
      recent: new DecayedSum(recentHalfLifeMs),
    };
    this.#paces.set(workerId, pace);
    return pace;
  }
}
