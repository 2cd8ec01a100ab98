import { type BatonError, batonError, type CandidateRecord, workerKey } from "@baton/domain";
import type { Fleet, WorkerView } from "@baton/fleet";
import { noOverlap, type PrefixIndex, type WorkerOverlap } from "@baton/prefix-index";
import { type PrefillCandidate, type PrefillCost, prefillCosts } from "./prefill-cost.ts";
import type { PrefillLoad } from "./prefill-load.ts";
import type { OfferedPrefill, PlaceRequest, PrefillPoolOptions } from "./prefill-types.ts";

/** What the prefill choice reads. */
export interface PrefillView {
  readonly fleet: Fleet;
  readonly index: PrefixIndex;
  readonly load: PrefillLoad;
  readonly options: PrefillPoolOptions;
}

const offersMax = 3;

/** One cost per configured worker; those behind a barrier carry its reason. */
export function scorePrefill(
  view: PrefillView,
  request: PlaceRequest,
  promptTokens: number,
  nowMs: number,
): PrefillCost[] {
  const overlaps = new Map<string, WorkerOverlap>();
  for (const set of request.hashSets) {
    for (const [worker, overlap] of view.index.overlaps(set.hashes, nowMs)) {
      overlaps.set(worker, overlap);
    }
  }
  const rejected: PrefillCost[] = [];
  const candidates: PrefillCandidate[] = [];
  for (const worker of view.fleet.workers()) {
    const { workerId } = worker.config;
    const identity = { workerId, incarnation: worker.incarnation ?? "" };
    const barrier = barrierOf(view, worker, request, nowMs);
    if (barrier !== null) rejected.push(rejectedCost({ worker: identity, rejected: barrier }));
    else {
      const name = workerKey(identity);
      candidates.push({
        worker: identity,
        overlap: overlaps.get(name) ?? noOverlap,
        blockSizeTokens: blockSizeOf(view, worker),
        waitMs: view.load.waitMs(name, nowMs),
        rateFactor: view.load.rateFactor(workerId, nowMs),
        recentMs: view.load.recentMs(workerId, nowMs),
      });
    }
  }
  return [...prefillCosts(candidates, promptTokens, view.options), ...rejected];
}

function barrierOf(
  view: PrefillView,
  worker: WorkerView,
  request: PlaceRequest,
  nowMs: number,
): string | null {
  if (request.excluded.includes(worker.config.workerId)) return "failed this request before";
  const barrier = view.fleet.barrier(worker, nowMs);
  if (barrier !== null) return barrier;
  const limit = worker.maxModelLenTokens;
  if (limit !== null && request.promptTokens !== null && request.promptTokens >= limit) {
    return `takes at most ${limit} tokens`;
  }
  return null;
}

export function offerPrefill(
  view: PrefillView,
  costs: readonly PrefillCost[],
  winner: PrefillCost,
  nowMs: number,
): OfferedPrefill[] {
  const others = costs
    .filter((each) => each.record.costMs !== null && each !== winner)
    .sort((left, right) => left.record.costMs! - right.record.costMs!);
  return [winner, ...others].slice(0, offersMax).map((cost) => {
    const worker = view.fleet.get(cost.record.worker.workerId)!;
    return {
      worker: view.fleet.address(worker),
      isAggregated: worker.config.role === "both",
      connector: worker.config.connector,
      blockSizeTokens: blockSizeOf(view, worker),
      cachedTokens: cost.cachedTokens,
      predictedWaitMs: view.load.waitMs(workerKey(cost.record.worker), nowMs),
      predictedPrefillMs: cost.computeMs,
      costMs: cost.record.costMs!,
    };
  });
}

/** From events when there are some, else what the engine's metrics say. */
export function blockSizeOf(view: PrefillView, worker: WorkerView): number | null {
  const { workerId } = worker.config;
  if (worker.incarnation === null) return null;
  const learnt = view.index.blockSizeTokens(
    workerKey({ workerId, incarnation: worker.incarnation }),
  );
  if (learnt !== null) return learnt;
  const said = worker.signals.blockSizeTokens;
  return said.kind === "known" ? said.value : null;
}

function rejectedCost(of: { worker: CandidateRecord["worker"]; rejected: string }): PrefillCost {
  return {
    record: { ...of, terms: [], costMs: null },
    cachedTokens: { gpu: 0, host: 0, disk: 0 },
    computeMs: 0,
  };
}

/** The prompt exceeds what any worker takes: no wait and no retry can help. Null otherwise. */
export function tooLongFor(view: PrefillView, request: PlaceRequest): BatonError | null {
  const limits = view.fleet.workers().map((worker) => worker.maxModelLenTokens);
  const most = limits.reduce((max, each) =>
    max === null || each === null ? null : Math.max(max, each),
  );
  const { promptTokens } = request;
  if (most === null || most === undefined || promptTokens === null || promptTokens < most)
    return null;
  const message = `The prompt has ${promptTokens} tokens; with an answer at most ${most} fit.`;
  return batonError("BATON_BAD_REQUEST", message);
}

/** The least loaded worker is busy for longer than requests are kept. */
export function saturated(waitMs: number, waitMsMax: number): BatonError {
  const retryAfterS = Math.max(1, Math.ceil((waitMs - waitMsMax) / 1_000));
  const message = `the least loaded prefill worker is busy for ${Math.round(waitMs)} ms, over prefill.waitMsMax ${waitMsMax}`;
  return batonError("BATON_SATURATED", message, { retryAfterS });
}
