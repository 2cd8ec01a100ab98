import { type BatonError, batonError, type CandidateRecord, workerKey } from "@baton/domain";
import type { Fleet, LeaseLedger, LoadLease, WorkerView } from "@baton/fleet";
import { prefillMs } from "@baton/perf-model";
import type { TransferLedger } from "@baton/transfer";
import { decodeCost, rejectedDecode } from "./decode-cost.ts";
import type { DecodePoolOptions, ReserveRequest } from "./decode-types.ts";

export interface DecodeLease extends LoadLease {
  readonly workerId: string;
  readonly kvTokens: number;
}

/** What the decode choice reads. */
export interface DecodeView {
  readonly fleet: Fleet;
  readonly leases: LeaseLedger<DecodeLease>;
  readonly transfers: TransferLedger;
  readonly options: DecodePoolOptions;
}

export function scoreDecode(
  pool: DecodeView,
  view: WorkerView,
  request: ReserveRequest,
  need: { readonly promptTokens: number; readonly outputTokens: number },
  nowMs: number,
): CandidateRecord {
  const { workerId } = view.config;
  const worker = { workerId, incarnation: view.incarnation ?? "" };
  const barrier = barrierOf(pool, view, request, nowMs);
  if (barrier !== null) return rejectedDecode(worker, barrier);
  const offer = request.offers[0] ?? null;
  const own = ownLoad(pool, view);
  const capacity = view.signals.kvCapacityTokens;
  const kvCapacityTokens = capacity.kind === "known" ? capacity.value : null;
  const usage = view.signals.kvUsageRatio;
  const saidTokens =
    usage.kind === "known" && kvCapacityTokens !== null ? usage.value * kvCapacityTokens : 0;
  const bytes = need.promptTokens * pool.options.profile.kvBytesPerToken;
  const candidate = {
    worker,
    sequences: own.sequences,
    // The engine knows what lies there; our own sum knows what is promised and not there yet.
    kvTokens: Math.max(own.kvTokens, saidTokens),
    kvCapacityTokens,
    transferMs:
      offer === null || offer.isAggregated
        ? 0
        : pool.transfers.finishMs(
            { from: offer.worker.workerId, to: workerId, bytes },
            pool.options.linkBytesPerSecond,
          ),
    localPrefillMs:
      offer !== null
        ? 0
        : prefillMs(pool.options.profile.prefill, {
            newTokens: need.promptTokens,
            pastTokens: 0,
          }),
  };
  return decodeCost(candidate, need, pool.options.profile.decode);
}

function barrierOf(
  pool: DecodeView,
  view: WorkerView,
  request: ReserveRequest,
  nowMs: number,
): string | null {
  if (request.excluded.includes(view.config.workerId)) return "failed this request before";
  const barrier = pool.fleet.barrier(view, nowMs);
  if (barrier !== null) return barrier;
  const offer = request.offers[0] ?? null;
  if (offer === null) return null;
  if (offer.isAggregated) {
    const isSame = view.config.workerId === offer.worker.workerId;
    return isSame ? null : `the prompt is prefilled on ${offer.worker.workerId} without a transfer`;
  }
  if (view.config.connector !== offer.connector) {
    return `speaks ${view.config.connector}, the prefill worker ${offer.connector}`;
  }
  return null;
}

/** What our own leases put on a worker's present life. */
export function ownLoad(
  pool: DecodeView,
  view: WorkerView,
): { sequences: number; kvTokens: number } {
  if (view.incarnation === null) return { sequences: 0, kvTokens: 0 };
  const { workerId } = view.config;
  const worker = workerKey({ workerId, incarnation: view.incarnation });
  let sequences = 0;
  let kvTokens = 0;
  for (const lease of pool.leases.onWorker(worker)) {
    sequences += 1;
    kvTokens += lease.kvTokens;
  }
  return { sequences, kvTokens };
}

/** Why nobody was chosen, as an error for the client. */
export function refusal(reason: string, candidates: readonly CandidateRecord[]): BatonError {
  const rooms = candidates.filter((each) => each.rejected?.startsWith("room for"));
  if (rooms.length > 0 && rooms.length === candidates.length) {
    return batonError("BATON_SATURATED", reason, { retryAfterS: 1 });
  }
  const pairs = candidates.filter((each) => each.rejected?.startsWith("speaks"));
  if (pairs.length > 0) return batonError("BATON_NO_COMPATIBLE_PAIR", reason);
  return batonError("BATON_NO_DECODE_WORKER", reason);
}
