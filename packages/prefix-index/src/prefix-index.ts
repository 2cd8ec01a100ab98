import type { KvEvent, Tier, TierCounts } from "@baton/domain";
import type { HashList } from "@baton/kit";
import { BlockFacts, type HeldCopies } from "./block-facts.ts";
import { blockKeys } from "./block-keys.ts";
import { Predictions } from "./predictions.ts";

/** What one worker holds, and will hold, of one prompt's leading blocks. */
export interface WorkerOverlap {
  /** Blocks of the run by best tier: facts only. */
  readonly cachedBlocks: TierCounts;
  /** Leading blocks that lie on the GPU. */
  readonly gpuPrefixBlocks: number;
  /** Blocks of the run that only a prediction promises. */
  readonly pendingBlocks: number;
  /** When the last promised block of the run is expected; null when none is pending. */
  readonly pendingEtaMs: number | null;
}

export interface ApplyResult {
  readonly storedBlocks: number;
  readonly ignored: string | null;
}

export interface IndexStats {
  readonly blocks: number;
  readonly engineHashes: number;
  readonly predictedAttempts: number;
}

export const noOverlap: WorkerOverlap = {
  cachedBlocks: { gpu: 0, host: 0, disk: 0 },
  gpuPrefixBlocks: 0,
  pendingBlocks: 0,
  pendingEtaMs: null,
};

/**
 * Facts and predictions of one model's pool, and the one reader that merges them. Workers are named
 * by `workerKey`, so a new incarnation starts empty.
 */
export class PrefixIndex {
  readonly #facts: BlockFacts;
  readonly #predictions = new Predictions();

  constructor(options: {
    readonly model: string;
    readonly tierOf: (medium: string | null) => Tier | "unknown";
  }) {
    this.#facts = new BlockFacts(options.model, options.tierOf);
  }

  /** Applies one event in stream order; stored blocks confirm predictions of that worker. */
  apply(worker: string, event: KvEvent): ApplyResult {
    const result = this.#facts.apply(worker, event);
    this.#predictions.confirm(worker, result.stored);
    return { storedBlocks: result.stored.length, ignored: result.ignored };
  }

  /** Learnt from the worker's events; null before the first stored block. */
  blockSizeTokens(worker: string): number | null {
    return this.#facts.blockSizeTokens(worker);
  }

  /** The stream was lost or the cache cleared: facts go, predictions stay. */
  clearFacts(worker: string): void {
    this.#facts.drop(worker);
  }

  dropWorker(worker: string): void {
    this.#facts.drop(worker);
    this.#predictions.dropWorker(worker);
  }

  assume(options: {
    readonly attempt: string;
    readonly worker: string;
    readonly hashes: HashList;
    readonly etaMs: number;
    readonly expiresMs: number;
  }): void {
    const keys = blockKeys(options.hashes);
    const { attempt, worker, etaMs, expiresMs } = options;
    this.#predictions.assume(attempt, worker, keys, etaMs, expiresMs);
  }

  forget(attempt: string): void {
    this.#predictions.forget(attempt);
  }

  settle(attempt: string): void {
    this.#predictions.settle(attempt);
  }

  expire(nowMs: number): void {
    this.#predictions.expire(nowMs);
  }

  stats(): IndexStats {
    return {
      blocks: this.#facts.blockCount,
      engineHashes: this.#facts.engineHashCount,
      predictedAttempts: this.#predictions.attemptCount,
    };
  }

  /**
   * Overlap of the prompt's chained `hashes` with each worker that has any. A worker's run ends at
   * the first block that it neither holds nor is promised. O(blocks of the longest run × its holders).
   */
  overlaps(hashes: HashList, nowMs: number): Map<string, WorkerOverlap> {
    const runs = new Map<string, Run>();
    let alive: Run[] = [];
    const keys = blockKeys(hashes);
    for (let at = 0; at < keys.length; at++) {
      const key = keys[at]!;
      const holders = this.#facts.holders(key);
      if (at === 0) alive = this.#firstRuns(key, holders, runs);
      alive = alive.filter((run) => this.#extend(run, key, holders, nowMs));
      if (alive.length === 0) break;
    }
    const overlaps = new Map<string, WorkerOverlap>();
    for (const [worker, run] of runs) overlaps.set(worker, run.overlap());
    return overlaps;
  }

  #firstRuns(
    key: bigint,
    holders: ReadonlyMap<string, HeldCopies> | undefined,
    runs: Map<string, Run>,
  ): Run[] {
    for (const worker of holders?.keys() ?? []) runs.set(worker, new Run(worker));
    for (const worker of this.#predictions.workersAt(key)) {
      if (!runs.has(worker)) runs.set(worker, new Run(worker));
    }
    return [...runs.values()];
  }

  #extend(
    run: Run,
    key: bigint,
    holders: ReadonlyMap<string, HeldCopies> | undefined,
    nowMs: number,
  ): boolean {
    const copies = holders?.get(run.worker);
    if (copies !== undefined) return run.addHeld(copies);
    const prediction = this.#predictions.at(key, run.worker, nowMs);
    if (prediction === null) return false;
    return run.addPending(prediction.etaMs);
  }
}

class Run {
  readonly worker: string;
  readonly #blocks = { gpu: 0, host: 0, disk: 0 };
  #gpuPrefixBlocks = 0;
  #isGpuPrefix = true;
  #pendingBlocks = 0;
  #pendingEtaMs: number | null = null;

  constructor(worker: string) {
    this.worker = worker;
  }

  addHeld(copies: HeldCopies): true {
    const tier = copies[0] > 0 ? "gpu" : copies[1] > 0 ? "host" : "disk";
    this.#blocks[tier] += 1;
    if (tier !== "gpu") this.#isGpuPrefix = false;
    else if (this.#isGpuPrefix) this.#gpuPrefixBlocks += 1;
    return true;
  }

  addPending(etaMs: number): true {
    this.#pendingBlocks += 1;
    this.#isGpuPrefix = false;
    this.#pendingEtaMs = Math.max(this.#pendingEtaMs ?? etaMs, etaMs);
    return true;
  }

  overlap(): WorkerOverlap {
    return {
      cachedBlocks: { ...this.#blocks },
      gpuPrefixBlocks: this.#gpuPrefixBlocks,
      pendingBlocks: this.#pendingBlocks,
      pendingEtaMs: this.#pendingEtaMs,
    };
  }
}
