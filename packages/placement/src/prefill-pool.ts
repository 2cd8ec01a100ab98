import {
  batonError,
  type DecisionRecord,
  type KvEvent,
  sameWorker,
  workerKey,
} from "@baton/domain";
import { Fleet, type FleetChange, type Probe } from "@baton/fleet";
import { fail, ok } from "@baton/kit";
import { type ApplyResult, PrefixIndex } from "@baton/prefix-index";
import { pickCheapest, pickNext } from "./pick.ts";
import type { PrefillCost } from "./prefill-cost.ts";
import { type PrefillLease, PrefillLoad } from "./prefill-load.ts";
import {
  blockSizeOf,
  offerPrefill,
  type PrefillView,
  saturated,
  scorePrefill,
  tooLongFor,
} from "./prefill-score.ts";
import type {
  PlaceRequest,
  PlaceResult,
  PrefillPoolOptions,
  PrefillStats,
} from "./prefill-types.ts";
import { type AttemptKey, attemptKey, type Moment, tokensOrGuess } from "./request.ts";

/** A prediction lives this much longer than its ETA, and within these bounds. */
const predictionStretch = 1.5;
const eventDelayMs = 250;
const predictionMsMin = 2_000;
const predictionMsMax = 600_000;

/** All that the prefill-scheduler knows of its pool, and the prefill choice. */
export class PrefillPool {
  readonly fleet: Fleet;
  readonly #options: PrefillPoolOptions;
  readonly #index: PrefixIndex;
  readonly #load = new PrefillLoad();
  readonly #view: PrefillView;
  /** Live attempts, so that a repeated `place` gets the same answer and is charged once. */
  readonly #placed = new Map<
    string,
    { readonly request: PlaceRequest; readonly result: PlaceResult }
  >();
  #turn = 0;

  constructor(options: PrefillPoolOptions) {
    this.#options = options;
    this.fleet = new Fleet({ model: options.model, workers: options.workers });
    this.#index = new PrefixIndex({ model: options.model, tierOf: options.tierOf });
    this.#view = { fleet: this.fleet, index: this.#index, load: this.#load, options };
  }

  /** Chooses, and charges the winner at once so that the next decision sees it. */
  place(request: PlaceRequest, moment: Moment): PlaceResult {
    const earlier = this.#placed.get(attemptKey(request));
    if (earlier !== undefined) return earlier.result;
    const promptTokens = tokensOrGuess(request.promptTokens, request.promptBytes);
    const costs = scorePrefill(this.#view, request, promptTokens, moment.nowMs);
    const candidates = costs.map((each) => each.record);
    const pick =
      this.#options.policy === "cost"
        ? pickCheapest(candidates, moment.tieDraw)
        : pickNext(candidates, this.#turn++);
    const record: DecisionRecord = {
      pool: "prefill",
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
    const tooLong = tooLongFor(this.#view, request);
    if (pick.winner === null && tooLong !== null) return { record, offers: fail(tooLong) };
    if (pick.winner === null) {
      return { record, offers: fail(batonError("BATON_NO_PREFILL_WORKER", pick.reason)) };
    }
    const winner = costs.find((each) => sameWorker(each.record.worker, pick.winner!))!;
    const waitMs = this.#load.waitMs(workerKey(pick.winner), moment.nowMs);
    if (waitMs > this.#options.waitMsMax) {
      return { record, offers: fail(saturated(waitMs, this.#options.waitMsMax)) };
    }
    const offers = offerPrefill(this.#view, costs, winner, moment.nowMs);
    const result: PlaceResult = { record, offers: ok(offers) };
    this.#placed.set(attemptKey(request), { request, result });
    this.#charge(request, winner, promptTokens, moment.nowMs);
    return result;
  }

  /** The decode side took another of the offers: the charge moves there. */
  moved(request: AttemptKey, workerId: string, moment: Moment): void {
    const key = attemptKey(request);
    const placed = this.#placed.get(key);
    if (placed === undefined) return;
    this.#withdraw(key, moment.nowMs);
    const { request: asked } = placed;
    const promptTokens = tokensOrGuess(asked.promptTokens, asked.promptBytes);
    const cost = scorePrefill(this.#view, asked, promptTokens, moment.nowMs).find(
      (each) => each.record.worker.workerId === workerId && each.record.costMs !== null,
    );
    if (cost === undefined) return;
    this.#placed.set(key, placed);
    this.#charge(asked, cost, promptTokens, moment.nowMs);
  }

  /**
   * Handed back before anything was dispatched, or failed: nothing will come of it. Returns the
   * worker that was charged, null when the attempt held nothing any more.
   */
  withdrawn(request: AttemptKey, workerFault: boolean, nowMs: number): string | null {
    const lease = this.#withdraw(attemptKey(request), nowMs);
    if (lease === undefined) return null;
    if (workerFault) this.fleet.applyFault(lease.workerId, nowMs);
    return lease.workerId;
  }

  /** The prefill leg was answered: load ends, promised blocks wait for their events. */
  prefilled(request: AttemptKey, nowMs: number): void {
    const key = attemptKey(request);
    this.#placed.delete(key);
    this.#index.settle(key);
    const lease = this.#load.release(key, true, nowMs);
    if (lease !== undefined) this.fleet.applySuccess(lease.workerId);
  }

  applyEvent(workerId: string, event: KvEvent): ApplyResult {
    const worker = this.#nameOf(workerId);
    if (worker === null) return { storedBlocks: 0, ignored: "worker has not answered yet" };
    return this.#index.apply(worker, event);
  }

  /** The event stream of the worker is void from the start. */
  resetEvents(workerId: string): void {
    const worker = this.#nameOf(workerId);
    if (worker !== null) this.#index.clearFacts(worker);
  }

  applyProbe(workerId: string, probe: Probe): FleetChange[] {
    return this.#settleChanges(this.fleet.applyProbe(workerId, probe));
  }

  applyUnreachable(workerId: string, reason: string): FleetChange[] {
    return this.#settleChanges(this.fleet.applyUnreachable(workerId, reason));
  }

  applyRestart(workerId: string): FleetChange[] {
    return this.#settleChanges(this.fleet.applyRestart(workerId));
  }

  /** A frontend is gone: what it held ends. Returns how many leases. */
  releaseOwner(owner: string, nowMs: number): number {
    return this.#forgetAll(this.#load.releaseOwner(owner, nowMs));
  }

  /** Ends what is overdue. Returns how many leases: above zero means that messages were lost. */
  sweep(nowMs: number): number {
    this.#index.expire(nowMs);
    return this.#forgetAll(this.#load.releaseOverdue(nowMs));
  }

  /** Index block sizes in use, ascending: what frontends hash prompts by. */
  indexBlockSizes(): number[] {
    const sizes = new Set<number>();
    for (const worker of this.fleet.workers()) {
      const size = blockSizeOf(this.#view, worker);
      if (size !== null) sizes.add(size);
    }
    return [...sizes].sort((left, right) => left - right);
  }

  leasesByWorker(): Map<string, number> {
    return new Map(this.stats(0).workers.map((each) => [each.workerId, each.leases]));
  }

  stats(nowMs: number): PrefillStats {
    const { blocks: indexBlocks, predictedAttempts } = this.#index.stats();
    const workers = this.fleet.workers().map(({ config: { workerId } }) => {
      const name = this.#nameOf(workerId);
      return {
        workerId,
        leases: name === null ? 0 : this.#load.leases.countOnWorker(name),
        waitMs: name === null ? 0 : this.#load.waitMs(name, nowMs),
        rateFactor: this.#load.rateFactor(workerId, nowMs),
      };
    });
    return { leases: this.#load.leases.size, indexBlocks, predictedAttempts, workers };
  }

  #charge(request: PlaceRequest, cost: PrefillCost, promptTokens: number, nowMs: number): void {
    const { workerId } = cost.record.worker;
    const worker = workerKey(cost.record.worker);
    const key = attemptKey(request);
    const waitMs = this.#load.waitMs(worker, nowMs);
    const predictedMs = cost.computeMs;
    const profileMs = predictedMs / this.#load.rateFactor(workerId, nowMs);
    const { owner, deadlineMs } = request;
    this.#load.grant({ key, worker, workerId, owner, deadlineMs, predictedMs, profileMs }, nowMs);
    const size = blockSizeOf(this.#view, this.fleet.get(workerId)!);
    const hashes = request.hashSets.find((set) => set.blockSizeTokens === size)?.hashes;
    if (hashes === undefined || promptTokens === 0) return;
    const untilMs = waitMs + predictedMs;
    const ttlMs = Math.min(
      predictionMsMax,
      Math.max(predictionMsMin, untilMs * predictionStretch + eventDelayMs),
    );
    const etaMs = nowMs + untilMs;
    this.#index.assume({ attempt: key, worker, hashes, etaMs, expiresMs: nowMs + ttlMs });
  }

  #withdraw(key: string, nowMs: number): PrefillLease | undefined {
    this.#placed.delete(key);
    const lease = this.#load.release(key, false, nowMs);
    // After `prefilled` the blocks are there, or on their way: only a live lease takes them back.
    if (lease !== undefined) this.#index.forget(key);
    return lease;
  }

  #settleChanges(changes: FleetChange[]): FleetChange[] {
    for (const change of changes) {
      if (change.kind !== "incarnation" || change.ended === null) continue;
      const ended = workerKey({ workerId: change.workerId, incarnation: change.ended });
      this.#index.dropWorker(ended);
      this.#forgetAll(this.#load.releaseWorker(ended));
    }
    return changes;
  }

  #forgetAll(leases: readonly PrefillLease[]): number {
    for (const lease of leases) {
      this.#index.forget(lease.key);
      this.#placed.delete(lease.key);
    }
    return leases.length;
  }

  #nameOf(workerId: string): string | null {
    const incarnation = this.fleet.get(workerId)?.incarnation ?? null;
    return incarnation === null ? null : workerKey({ workerId, incarnation });
  }
}
