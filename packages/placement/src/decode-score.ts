import { type BatonError, batonError, type CandidateRecord, workerKey } from "@baton/domain";
import type { Fleet, LeaseLedger, LoadLease, WorkerView } from "@baton/fleet";
import { prefillMs } from "@baton/perf-model";
import type { TransferLedger } from "@baton/transfer";
import { type DecodeNeed, decodeCost, rejectedDecode, usableTokens } from "./decode-cost.ts";
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
  /** By worker id: what the engine held beyond our own leases when it last reported. */
  readonly foreignTokens: ReadonlyMap<string, number>;
  readonly options: DecodePoolOptions;
}

/** A scored worker; `obstacle` says what kind of reason rejected it. */
export interface DecodeScore {
  readonly record: CandidateRecord;
  readonly obstacle: "room" | "connector" | "other" | null;
}

export function scoreDecode(
  pool: DecodeView,
  view: WorkerView,
  request: ReserveRequest,
  need: { readonly promptTokens: number; readonly outputTokens: number },
  nowMs: number,
): DecodeScore {
  const { workerId } = view.config;
  const worker = { workerId, incarnation: view.incarnation ?? "" };
  const barrier = barrierOf(pool, view, request, nowMs);
  if (barrier !== null) {
    const { reason, obstacle } = barrier;
    return { record: rejectedDecode(worker, reason), obstacle };
  }
  const offer = request.offers[0] ?? null;
  const own = ownLoad(pool, view);
  const capacity = view.signals.kvCapacityTokens;
  const bytes = need.promptTokens * pool.options.profile.kvBytesPerToken;
  const candidate = {
    worker,
    sequences: own.sequences,
    // Our own sum is fresh and knows promises; the engine's report knows what others put there.
    kvTokens: own.kvTokens + (pool.foreignTokens.get(workerId) ?? 0),
    kvCapacityTokens: capacity.kind === "known" ? capacity.value : null,
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
  const record = decodeCost(candidate, need, pool.options.profile.decode);
  return { record, obstacle: record.rejected === null ? null : "room" };
}

interface Barrier {
  readonly reason: string;
  readonly obstacle: "connector" | "other";
}

function other(reason: string): Barrier {
  return { reason, obstacle: "other" };
}

function barrierOf(
  pool: DecodeView,
  view: WorkerView,
  request: ReserveRequest,
  nowMs: number,
): Barrier | null {
  if (request.excluded.includes(view.config.workerId)) return other("failed this request before");
  const barrier = pool.fleet.barrier(view, nowMs);
  if (barrier !== null) return other(barrier);
  const offer = request.offers[0] ?? null;
  if (offer === null) return null;
  if (offer.isAggregated) {
    const isSame = view.config.workerId === offer.worker.workerId;
    return isSame
      ? null
      : other(`the prompt is prefilled on ${offer.worker.workerId} without a transfer`);
  }
  if (view.config.connector !== offer.connector) {
    const reason = `speaks ${view.config.connector}, the prefill worker ${offer.connector}`;
    return { reason, obstacle: "connector" };
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
export function refusal(
  pool: DecodeView,
  reason: string,
  scores: readonly DecodeScore[],
  need: DecodeNeed,
): BatonError {
  const lacksRoom = scores.some((each) => each.obstacle === "room");
  const capacities = pool.fleet.workers().map(({ signals }) => signals.kvCapacityTokens);
  const most = Math.max(
    ...capacities.map((each) => (each.kind === "known" ? usableTokens(each.value) : Infinity)),
  );
  const tokens = need.promptTokens + need.outputTokens;
  if (lacksRoom && tokens > most) {
    const message = `Prompt and answer need ${tokens} tokens of KV cache; the largest worker has room for ${most}.`;
    return batonError("BATON_BAD_REQUEST", message, { param: "max_tokens" });
  }
  if (lacksRoom) return batonError("BATON_SATURATED", reason, { retryAfterS: 1 });
  const isMismatch = scores.some((each) => each.obstacle === "connector");
  return batonError(isMismatch ? "BATON_NO_COMPATIBLE_PAIR" : "BATON_NO_DECODE_WORKER", reason);
}
