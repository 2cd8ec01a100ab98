import { type DecisionRecord, type WorkerIdentity, workerKey } from "@baton/domain";
import { Fleet, type FleetChange, LeaseLedger, type Probe, type WorkerView } from "@baton/fleet";
import { fail, ok } from "@baton/kit";
import { type ClaimAnswer, HandleBroker, type HandleClaim, TransferLedger } from "@baton/transfer";
import {
  type DecodeLease,
  type DecodeView,
  ownLoad,
  refusal,
  scoreDecode,
} from "./decode-score.ts";
import type {
  DecodePoolOptions,
  DecodeStats,
  Reservation,
  ReserveRequest,
  ReserveResult,
} from "./decode-types.ts";
import { pickCheapest, pickNext } from "./pick.ts";
import { type AttemptKey, attemptKey, type Moment, tokensOrGuess } from "./request.ts";

/** Far more restarts than fall into the life of a handle. */
const endedLivesMax = 1_024;

/** A claim by the identity of the prefill worker. */
export type PrefillClaim = Omit<HandleClaim, "prefill"> & { readonly worker: WorkerIdentity };

/** All that the decode-scheduler knows: its pool, the ledger of transfers, the broker of handles. */
export class DecodePool {
  readonly fleet: Fleet;
  readonly #options: DecodePoolOptions;
  readonly #leases = new LeaseLedger<DecodeLease>();
  readonly #transfers = new TransferLedger();
  readonly #broker = new HandleBroker();
  readonly #prefillLives = new Map<string, string>();
  readonly #endedLives = new Set<string>();
  readonly #foreignTokens = new Map<string, number>();
  readonly #view: DecodeView;
  /** Live attempts, so that a repeated `reserve` gets the same answer and holds once. */
  readonly #reserved = new Map<string, ReserveResult>();
  #turn = 0;

  constructor(options: DecodePoolOptions) {
    this.#options = options;
    this.fleet = new Fleet({ model: options.model, workers: options.workers });
    this.#view = {
      fleet: this.fleet,
      leases: this.#leases,
      transfers: this.#transfers,
      foreignTokens: this.#foreignTokens,
      options,
    };
  }

  /** Chooses, and holds KV room and link bytes at once, before any prefill starts. */
  reserve(request: ReserveRequest, moment: Moment): ReserveResult {
    const earlier = this.#reserved.get(attemptKey(request));
    if (earlier !== undefined) return earlier;
    const need = this.#needOf(request);
    const offer = request.offers[0] ?? null;
    const workers = this.fleet.workers();
    const scores = workers.map((worker) =>
      scoreDecode(this.#view, worker, request, need, moment.nowMs),
    );
    const candidates = scores.map((each) => each.record);
    const pick =
      this.#options.policy === "cost"
        ? pickCheapest(candidates, moment.tieDraw)
        : pickNext(candidates, this.#turn++);
    const record: DecisionRecord = {
      pool: "decode",
      requestId: request.requestId,
      attempt: request.attempt,
      policy: this.#options.policy,
      wallMs: moment.wallMs,
      promptTokens: request.promptTokens,
      candidates,
      winner: pick.winner,
      tieDraw: moment.tieDraw,
      reason: pick.reason,
    };
    if (pick.winner === null)
      return { record, reservation: fail(refusal(this.#view, pick.reason, scores, need)) };
    const view = this.fleet.get(pick.winner.workerId)!;
    const isRemote = offer !== null && !offer.isAggregated;
    this.#hold(request, view, need, isRemote ? offer.worker : null);
    const decode = this.fleet.address(view);
    const reservation: Reservation = isRemote
      ? { kind: "remote", prefill: offer.worker, decode, connector: offer.connector }
      : { kind: "local", decode };
    const result: ReserveResult = { record, reservation: ok(reservation) };
    this.#reserved.set(attemptKey(request), result);
    return result;
  }

  /** The life that a prefill worker is in: handles of an earlier one are void. Returns how many were open. */
  prefillLife(worker: WorkerIdentity): number {
    const known = this.#prefillLives.get(worker.workerId);
    this.#prefillLives.set(worker.workerId, worker.incarnation);
    if (known === undefined || known === worker.incarnation) return 0;
    const ended = workerKey({ ...worker, incarnation: known });
    this.#endedLives.add(ended);
    for (const oldest of this.#endedLives) {
      if (this.#endedLives.size <= endedLivesMax) break;
      this.#endedLives.delete(oldest);
    }
    return this.#broker.fence(ended).length;
  }

  claim(claim: PrefillClaim, nowMs: number): ClaimAnswer {
    // A life that was not heard of yet may be the newest: news of it can be slower than a claim.
    if (this.#endedLives.has(workerKey(claim.worker))) {
      return { kind: "refused", reason: `${claim.worker.workerId} restarted since` };
    }
    if (this.#leases.get(claim.key) === undefined) {
      return { kind: "refused", reason: "the attempt holds no reservation" };
    }
    return this.#broker.claim({ ...claim, prefill: workerKey(claim.worker) }, nowMs);
  }

  /** First byte of the decode leg: the transfer is over. */
  firstByte(request: AttemptKey): void {
    const key = attemptKey(request);
    this.#transfers.release(key);
    this.#broker.pulled(key);
    const lease = this.#leases.get(key);
    if (lease !== undefined) this.fleet.applySuccess(lease.workerId);
  }

  /** The attempt is over, however. Returns the worker that was held, null when none was any more. */
  ended(request: AttemptKey, workerFault: boolean, nowMs: number): string | null {
    const lease = this.#release(attemptKey(request));
    if (lease === undefined) return null;
    if (workerFault) this.fleet.applyFault(lease.workerId, nowMs);
    return lease.workerId;
  }

  applyProbe(workerId: string, probe: Probe): FleetChange[] {
    const changes = this.#settleChanges(this.fleet.applyProbe(workerId, probe));
    const worker = this.fleet.get(workerId);
    if (worker !== undefined) this.#foreignTokens.set(workerId, this.#foreign(worker));
    return changes;
  }

  applyUnreachable(workerId: string, reason: string): FleetChange[] {
    return this.#settleChanges(this.fleet.applyUnreachable(workerId, reason));
  }

  releaseOwner(owner: string): number {
    return this.#endAll(this.#leases.releaseOwner(owner));
  }

  /** Ends what is overdue. Returns how many leases and handles: above zero means lost messages. */
  sweep(nowMs: number): number {
    return this.#endAll(this.#leases.releaseOverdue(nowMs)) + this.#broker.sweep(nowMs).length;
  }

  leasesByWorker(): Map<string, number> {
    return new Map(
      this.fleet
        .workers()
        .map((worker) => [worker.config.workerId, ownLoad(this.#view, worker).sequences]),
    );
  }

  /** The decode side hashes nothing yet. */
  indexBlockSizes(): number[] {
    return [];
  }

  stats(): DecodeStats {
    return {
      leases: this.#leases.size,
      transfers: this.#transfers.size,
      openHandles: this.#broker.openCount,
      workers: this.fleet.workers().map((worker) => ({
        workerId: worker.config.workerId,
        leases: ownLoad(this.#view, worker).sequences,
        kvTokens: ownLoad(this.#view, worker).kvTokens,
        ingressBytes: this.#transfers.ingressBytes(worker.config.workerId),
      })),
    };
  }

  #hold(
    request: ReserveRequest,
    view: WorkerView,
    need: { readonly promptTokens: number; readonly outputTokens: number },
    prefill: WorkerIdentity | null,
  ): void {
    const key = attemptKey(request);
    const worker = workerKey({ workerId: view.config.workerId, incarnation: view.incarnation! });
    this.#leases.grant({
      key,
      worker,
      workerId: view.config.workerId,
      owner: request.owner,
      deadlineMs: request.deadlineMs,
      kvTokens: need.promptTokens + need.outputTokens,
    });
    if (prefill === null) return;
    const bytes = need.promptTokens * this.#options.profile.kvBytesPerToken;
    this.#transfers.reserve({ key, from: prefill.workerId, to: view.config.workerId, bytes });
  }

  #needOf(request: ReserveRequest): { promptTokens: number; outputTokens: number } {
    const { outputTokensDefault } = this.#options;
    return {
      promptTokens: tokensOrGuess(request.promptTokens, request.promptBytes),
      outputTokens: request.maxOutputTokens ?? outputTokensDefault,
    };
  }

  #settleChanges(changes: FleetChange[]): FleetChange[] {
    for (const change of changes) {
      if (change.kind !== "incarnation" || change.ended === null) continue;
      const ended = workerKey({ workerId: change.workerId, incarnation: change.ended });
      this.#endAll(this.#leases.releaseWorker(ended));
    }
    return changes;
  }

  /**
   * What others put on the worker: its report less our own leases of the same moment. A report alone
   * would keep a finished burst in the books until the next one.
   */
  #foreign(worker: WorkerView): number {
    const { kvCapacityTokens: capacity, kvUsageRatio: usage } = worker.signals;
    if (capacity.kind !== "known" || usage.kind !== "known") return 0;
    const own = ownLoad(this.#view, worker).kvTokens;
    return Math.max(0, Math.round(usage.value * capacity.value) - own);
  }

  #release(key: string): DecodeLease | undefined {
    this.#reserved.delete(key);
    this.#transfers.release(key);
    this.#broker.released(key);
    return this.#leases.release(key);
  }

  #endAll(leases: readonly DecodeLease[]): number {
    for (const lease of leases) this.#release(lease.key);
    return leases.length;
  }
}
