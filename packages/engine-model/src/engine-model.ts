import { invariant } from "@baton/kit";
import { type ActiveRequest, activeRequest, type StepRow } from "./active-request.ts";
import type { EngineModelConfig } from "./engine-config.ts";
import { type EngineCounters, newCounters } from "./engine-counters.ts";
import type { EngineRequest, Happening } from "./engine-request.ts";
import { ExportLeases } from "./export-leases.ts";
import { outputTokenText, pieceTokenId } from "./output-token.ts";
import { PagedCache } from "./paged-cache.ts";
import { StepPlanner } from "./step-planner.ts";
import { stepMs } from "./step-time.ts";
import { TransferLink } from "./transfer-link.ts";

/** A heartbeat at t keeps an export until t + this share of the lease. */
const heartbeatShare = 2 / 3;

/**
 * One engine: continuous batching over a paged cache, timed by a profile. Time is an argument (ms on
 * any line that never goes back), so real timers and a virtual clock drive it alike: call `advance`
 * at `nextWakeMs()`, carry out what `drain()` returns. A late call changes no model time: the next
 * step starts where the last one ended. Same calls, same result.
 */
export class EngineModel {
  readonly cache: PagedCache;
  readonly counters: EngineCounters = newCounters();
  /** Factor on the duration of steps that begin from now on. */
  slowdown = 1;
  readonly #config: EngineModelConfig;
  readonly #planner: StepPlanner;
  readonly #link: TransferLink;
  readonly #leases = new ExportLeases();
  readonly #active = new Map<string, ActiveRequest>();
  #step: { readonly rows: readonly StepRow[]; readonly endMs: number } | null = null;
  #nowMs = 0;
  #happenings: Happening[] = [];

  constructor(config: EngineModelConfig) {
    this.#config = config;
    this.cache = new PagedCache({
      usableBlocks: Math.floor(config.cacheTokens / config.blockSizeTokens),
      blockSizeTokens: config.blockSizeTokens,
      hashSeed: config.hashSeed,
    });
    this.#link = new TransferLink({
      bytesPerMs: config.linkBytesPerSecond / 1000,
      setupMs: config.transferSetupMs,
    });
    this.#planner = new StepPlanner({
      cache: this.cache,
      tokensPerStepMax: config.tokensPerStepMax,
      requestsRunningMax: config.requestsRunningMax,
      report: (happening) => this.#happenings.push(happening),
      counters: this.counters,
    });
  }

  get running(): number {
    return this.#planner.running;
  }

  /** For room or a slot. */
  get waitingForCapacity(): number {
    return this.#planner.waiting;
  }

  /** For KV of another engine. */
  get waitingForTransfer(): number {
    return this.#active.size - this.#planner.running - this.#planner.waiting;
  }

  /** Blocks under export leases. */
  get exportedBlocks(): number {
    return this.#leases.blocksHeld;
  }

  /** Joins the queue. Prompt and output together fit the cache; the id is not in use. */
  submit(request: EngineRequest, nowMs: number): void {
    this.advance(nowMs);
    invariant(!this.#active.has(request.id), `request id ${request.id} is in use`);
    invariant(request.tokensMax > 0, "a request asks for at least one token");
    const capacity = this.cache.usableBlocks * this.cache.blockSizeTokens;
    invariant(request.promptIds.length + request.tokensMax <= capacity, "a request fits the cache");
    const sequence = this.cache.open(request.promptIds, request.cacheSalt);
    const active = activeRequest(request, sequence);
    this.#active.set(request.id, active);
    this.#planner.enqueue(active);
    this.#startStep();
  }

  /** Ends a request in any state and gives its blocks back at once. False: it is not there. */
  abort(requestId: string, nowMs: number): boolean {
    this.advance(nowMs);
    const active = this.#active.get(requestId);
    if (active === undefined) return false;
    this.#active.delete(requestId);
    active.isGone = true;
    this.#planner.remove(active);
    this.#link.cancel(requestId, this.#nowMs);
    this.cache.release(active.sequence);
    this.counters.aborted++;
    this.#startStep();
    return true;
  }

  /** After `pull`: bytes begin to flow. Ignored when the request is gone. */
  beginTransfer(requestId: string, nowMs: number): void {
    this.advance(nowMs);
    const active = this.#active.get(requestId);
    if (active === undefined) return;
    const blocks = active.sequence.blocks.length - active.sequence.hashedBlocks;
    const bytes = blocks * this.cache.blockSizeTokens * this.#config.profile.kvBytesPerToken;
    this.#link.start(requestId, bytes, this.#nowMs);
    this.counters.transferredBytes += bytes;
    this.counters.transferredTokens += active.sequence.length - active.sequence.filledTokens;
  }

  /** After `transferred`: the contents of the pulled blocks (`readContents` of the other engine). */
  deliver(requestId: string, contents: Uint32Array, nowMs: number): void {
    this.advance(nowMs);
    const active = this.#active.get(requestId);
    if (active === undefined) return;
    active.contents = contents;
    this.#planner.enqueueDelivered(active);
    this.#startStep();
  }

  /** A decode engine has read an export. False: it was gone, and what was read may be anything. */
  releaseExport(requestId: string, nowMs: number): boolean {
    this.advance(nowMs);
    const blocks = this.#leases.release(requestId);
    if (blocks === null) {
      this.counters.lateNotices++;
      return false;
    }
    this.cache.freeBlockIds(blocks);
    this.#startStep();
    return true;
  }

  /** A decode engine still wants these exports. */
  heartbeat(requestIds: readonly string[], nowMs: number): void {
    this.advance(nowMs);
    const deadlineMs = this.#nowMs + this.#config.leaseMs * heartbeatShare;
    for (const id of requestIds) this.#leases.extend(id, deadlineMs);
  }

  /** When `advance` has something to do next; null: only a call from outside changes anything. */
  nextWakeMs(): number | null {
    let next = this.#step?.endMs ?? null;
    for (const atMs of [this.#link.nextAtMs(), this.#leases.nextDeadlineMs()]) {
      if (atMs !== null && (next === null || atMs < next)) next = atMs;
    }
    return next;
  }

  /** Does all that is due up to `nowMs`, each thing at its own time. */
  advance(nowMs: number): void {
    for (let next = this.nextWakeMs(); next !== null && next <= nowMs; next = this.nextWakeMs()) {
      this.#nowMs = Math.max(this.#nowMs, next);
      for (const requestId of this.#link.finish(this.#nowMs)) {
        this.#happenings.push({ kind: "transferred", atMs: this.#nowMs, requestId });
      }
      for (const { id, blocks } of this.#leases.expire(this.#nowMs)) {
        this.cache.freeBlockIds(blocks);
        this.counters.exportsExpired++;
        this.#happenings.push({ kind: "expired", atMs: this.#nowMs, requestId: id });
      }
      if (this.#step !== null && this.#step.endMs <= this.#nowMs) this.#finishStep(this.#step.rows);
      this.#startStep();
    }
    this.#nowMs = Math.max(this.#nowMs, nowMs);
  }

  /** What happened since the last call. */
  drain(): readonly Happening[] {
    const happenings = this.#happenings;
    if (happenings.length > 0) this.#happenings = [];
    return happenings;
  }

  #startStep(): void {
    if (this.#step !== null) return;
    const rows = this.#planner.plan(this.#nowMs);
    if (rows.length === 0) return;
    const load = { chunks: [] as { newTokens: number; pastTokens: number }[] };
    let decodeRows = 0;
    let decodeKvTokens = 0;
    for (const { active, fromToken, toToken } of rows) {
      if (fromToken === null) {
        decodeRows++;
        decodeKvTokens += active.sequence.length;
      } else load.chunks.push({ newTokens: toToken - fromToken, pastTokens: fromToken });
    }
    const durationMs = stepMs(this.#config.profile, { ...load, decodeRows, decodeKvTokens });
    this.#step = { rows, endMs: this.#nowMs + durationMs * this.slowdown };
  }

  #finishStep(rows: readonly StepRow[]): void {
    this.#step = null;
    this.counters.steps++;
    const atMs = this.#nowMs;
    const events = this.cache.takeEvents();
    if (events.length > 0) this.#happenings.push({ kind: "events", atMs, events });
    let tokens = 0;
    for (const { fromToken, toToken } of rows)
      tokens += fromToken === null ? 1 : toToken - fromToken;
    this.#happenings.push({ kind: "step", atMs, tokens });
    for (const { active, fromToken, toToken } of rows) {
      if (active.isGone) continue;
      if (fromToken !== null) {
        const requestId = active.request.id;
        this.counters.computedTokens += toToken - fromToken;
        this.#happenings.push({ kind: "prefilled", atMs, requestId, fromToken, toToken });
        active.isDecoding = toToken === active.sequence.length;
      }
      if (active.isDecoding) this.#emitToken(active);
    }
  }

  #emitToken(active: ActiveRequest): void {
    const { request, sequence } = active;
    active.digest ??= this.cache.promptDigest(sequence);
    const index = active.generated++;
    const text = outputTokenText(active.digest[0]!, active.digest[1]!, index);
    const tokenId = pieceTokenId(text);
    const atMs = this.#nowMs;
    this.counters.generatedTokens++;
    this.#happenings.push({ kind: "token", atMs, requestId: request.id, index, tokenId, text });
    if (active.generated < request.tokensMax) sequence.append(tokenId);
    else this.#finish(active);
  }

  #finish(active: ActiveRequest): void {
    const { request, sequence } = active;
    this.#active.delete(request.id);
    this.#planner.remove(active);
    this.counters.finished++;
    const blocks = this.cache.detach(sequence);
    const isExport = request.kind === "prefill-for-remote";
    if (isExport) this.#leases.add(request.id, blocks, this.#nowMs + this.#config.leaseMs);
    else this.cache.freeBlockIds(blocks);
    this.#happenings.push({
      kind: "finished",
      atMs: this.#nowMs,
      requestId: request.id,
      exportedBlocks: isExport ? blocks : null,
      preemptions: active.preemptions,
    });
  }
}
