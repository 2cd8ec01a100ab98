import { type BatonError, batonError, type WorkerAddress } from "@baton/domain";
import { assertNever } from "@baton/kit";
import type { FlowEffect, FlowEvent, Offer, Plan, StageReport } from "./flow-messages.ts";

export type FlowState =
  | "new"
  | "placing"
  | "reserving"
  | "prefilling"
  | "claiming"
  | "decoding"
  | "streaming"
  /** The client is gone; the prefill's answer is awaited, since only its handle frees the blocks. */
  | "draining"
  /** The client is gone; a decode leg is under way so that the prefill engine frees its blocks. */
  | "abandoning"
  | "over";

export interface FlowOptions {
  /** Null when prefill and decode may be split; else why not, and one engine does both. */
  readonly unsplittable: string | null;
  /** Plans in all: 2 means that a failed leg is planned again once. */
  readonly attemptsMax: number;
  /**
   * A prefill whose client left is let finish when at most this much is left of it: aborted just as it
   * ends it would leave blocks pinned until the lease ends, which nothing else can free.
   */
  readonly drainMsMax: number;
  /** Longest wait for the first byte of an abandoned decode leg. */
  readonly abandonMsMax: number;
}

/** An overdue prefill is awaited this many times `drainMsMax`, then aborted after all. */
const drainPatience = 4;

/**
 * One request's life, from `start` to exactly one `over`. Every attempt that reached a scheduler is
 * reported `ended` exactly once, every handle is presented at most once, and the client gets exactly one
 * answer unless it left. Steps run to completion; time is an argument.
 */
export class RequestFlow {
  readonly #options: FlowOptions;
  #state: FlowState = "new";
  #attempt = 0;
  #excluded: string[] = [];
  #offers: readonly Offer[] = [];
  #plan: Plan | null = null;
  #prefillEndMs = 0;
  /** What the last attempt failed with. */
  #failure: BatonError | null = null;
  /** Set once the client needs no answer any more: it left, or it got an error. */
  #closedBy: { readonly end: "client-closed" | "failed"; readonly code: string } | null = null;

  constructor(options: FlowOptions) {
    this.#options = options;
  }

  get state(): FlowState {
    return this.#state;
  }

  get attempt(): number {
    return this.#attempt;
  }

  step(event: FlowEvent, nowMs: number): FlowEffect[] {
    if (this.#state === "over") return [];
    if ("attempt" in event && event.attempt !== this.#attempt) return [];
    switch (event.kind) {
      case "start":
        return this.#state === "new" ? this.#begin() : [];
      case "client-closed":
        return this.#close({ end: "client-closed", code: "BATON_CLIENT_CLOSED" }, [], nowMs);
      case "deadline":
        return this.#deadline(nowMs);
      case "waited":
        return this.#waited();
      case "placed":
      case "place-failed":
        return this.#state === "placing" ? this.#onPlaced(event) : [];
      case "reserved":
      case "reserve-failed":
        return this.#state === "reserving" ? this.#onReserved(event, nowMs) : [];
      case "prefill-answered":
      case "prefill-rejected":
      case "prefill-failed":
        return this.#onPrefill(event);
      case "claimed":
      case "claim-refused":
        return this.#state === "claiming" ? this.#onClaim(event) : [];
      case "decode-started":
      case "decode-rejected":
      case "decode-failed":
      case "decode-ended":
        return this.#onDecode(event);
      default:
        return assertNever(event);
    }
  }

  #begin(): FlowEffect[] {
    this.#attempt += 1;
    this.#plan = null;
    this.#offers = [];
    const attempt = this.#attempt;
    if (this.#options.unsplittable === null) {
      this.#state = "placing";
      return [{ kind: "place", attempt, excluded: [...this.#excluded] }];
    }
    this.#state = "reserving";
    return [{ kind: "reserve", attempt, offers: [], excluded: [...this.#excluded] }];
  }

  #onPlaced(event: Extract<FlowEvent, { kind: "placed" | "place-failed" }>): FlowEffect[] {
    const { attempt } = event;
    if (event.kind === "place-failed") {
      return this.#fail(this.#reasonFor(event.error), "no prefill worker");
    }
    if (this.#closedBy !== null) return this.#end(false, "closed while placing");
    this.#state = "reserving";
    this.#offers = event.offers;
    return [{ kind: "reserve", attempt, offers: event.offers, excluded: [...this.#excluded] }];
  }

  #onReserved(
    event: Extract<FlowEvent, { kind: "reserved" | "reserve-failed" }>,
    nowMs: number,
  ): FlowEffect[] {
    const { attempt } = event;
    if (event.kind === "reserve-failed") {
      const isLate = event.error.code === "BATON_BUS_DEADLINE";
      return isLate
        ? this.#retry(event.error, false)
        : this.#fail(this.#reasonFor(event.error), "no decode worker");
    }
    if (this.#closedBy !== null) return this.#end(false, "closed while reserving");
    const offer = this.#offers.find((each) => each.worker.workerId === event.prefill?.workerId);
    this.#plan = {
      prefill: offer?.worker ?? null,
      decode: event.decode,
      connector: event.connector,
      blockSizeTokens: offer?.blockSizeTokens ?? null,
    };
    if (offer === undefined) {
      this.#state = "decoding";
      const isReturned = this.#offers.length > 0 && !this.#offers[0]!.isAggregated;
      const returned: FlowEffect[] = isReturned
        ? [this.#report({ kind: "returned", reason: "decode worker prefills itself" })]
        : [];
      return [...returned, { kind: "send-decode", attempt, plan: this.#plan }];
    }
    this.#state = "prefilling";
    this.#prefillEndMs = nowMs + offer.predictedWaitMs + offer.predictedPrefillMs;
    const moved: FlowEffect[] =
      offer === this.#offers[0] ? [] : [this.#report({ kind: "moved", prefill: offer.worker })];
    return [...moved, { kind: "send-prefill", attempt, plan: this.#plan }];
  }

  #onPrefill(
    event: Extract<FlowEvent, { kind: "prefill-answered" | "prefill-rejected" | "prefill-failed" }>,
  ): FlowEffect[] {
    if (this.#state !== "prefilling" && this.#state !== "draining") return [];
    const { attempt } = event;
    if (event.kind === "prefill-answered") {
      this.#state = "claiming";
      const { legMs, cachedTokens, promptTokens } = event;
      const stage = { kind: "prefilled", legMs, cachedTokens, promptTokens } as const;
      return [this.#report(stage), { kind: "claim", attempt, plan: this.#plan! }];
    }
    if (event.kind === "prefill-rejected") {
      const failed = this.#prefillFailed(false, "engine refused the request");
      if (this.#closedBy !== null) return [failed, ...this.#end(false, "refused after close")];
      this.#closedBy = { end: "failed", code: "BATON_ENGINE_REJECTED" };
      return [failed, { kind: "pass-refusal", attempt }, ...this.#end(false, "refused by engine")];
    }
    const failed = this.#prefillFailed(event.isWorkerFault, event.error.message);
    this.#exclude(this.#plan!.prefill);
    return [failed, ...this.#retry(event.error, false)];
  }

  #onClaim(event: Extract<FlowEvent, { kind: "claimed" | "claim-refused" }>): FlowEffect[] {
    const { attempt } = event;
    if (event.kind === "claim-refused") {
      return this.#retry(batonError("BATON_HANDLE_REFUSED", event.reason), false);
    }
    if (this.#closedBy === null) {
      this.#state = "decoding";
      return [{ kind: "send-decode", attempt, plan: this.#plan! }];
    }
    this.#state = "abandoning";
    return [{ kind: "send-abandon", attempt, plan: this.#plan! }, this.#waitAbandon()];
  }

  #onDecode(
    event: Extract<
      FlowEvent,
      { kind: "decode-started" | "decode-rejected" | "decode-failed" | "decode-ended" }
    >,
  ): FlowEffect[] {
    if (this.#state === "abandoning") return this.#abandoned(event.kind === "decode-started");
    if (this.#state === "streaming") return this.#onStream(event);
    if (this.#state !== "decoding") return [];
    const { attempt } = event;
    switch (event.kind) {
      case "decode-started":
        this.#state = "streaming";
        return [
          this.#report({ kind: "first-byte", legMs: event.legMs }),
          { kind: "relay", attempt },
        ];
      case "decode-rejected":
        this.#closedBy = { end: "failed", code: "BATON_ENGINE_REJECTED" };
        return [{ kind: "pass-refusal", attempt }, ...this.#end(false, "refused by engine")];
      case "decode-failed":
        this.#exclude(this.#plan!.decode);
        return this.#retry(event.error, event.isWorkerFault);
      case "decode-ended": {
        const error = batonError("BATON_ENGINE_GARBAGE", "the decode engine sent an empty answer");
        this.#exclude(this.#plan!.decode);
        return this.#retry(error, true);
      }
      default:
        return assertNever(event);
    }
  }

  #onStream(event: FlowEvent): FlowEffect[] {
    if (event.kind === "decode-ended") {
      this.#state = "over";
      const { outputTokens } = event;
      const stage = { end: "done", workerFault: false, outputTokens, reason: "" } as const;
      return [this.#report({ kind: "ended", ...stage }), { kind: "over", end: "done", code: null }];
    }
    if (event.kind !== "decode-failed") return [];
    this.#closedBy = { end: "failed", code: event.error.code };
    const broken: FlowEffect = { kind: "break", error: event.error };
    return [broken, ...this.#end(event.isWorkerFault, event.error.message)];
  }

  /** The client needs no answer any more: stop what may be stopped, finish what must be. */
  #close(
    by: { readonly end: "client-closed" | "failed"; readonly code: string },
    first: FlowEffect[],
    nowMs: number,
  ): FlowEffect[] {
    if (this.#closedBy !== null) return [];
    this.#closedBy = by;
    const attempt = this.#attempt;
    switch (this.#state) {
      case "new":
        this.#state = "over";
        return [...first, { kind: "over", ...by }];
      case "placing":
      case "reserving":
      case "claiming":
        return first; // the answer under way may grant something: it is awaited and given back
      case "prefilling": {
        if (this.#prefillEndMs - nowMs <= this.#options.drainMsMax) {
          this.#state = "draining";
          return [...first, { kind: "wait", ms: this.#options.drainMsMax * drainPatience }];
        }
        return [...first, ...this.#abortPrefill()];
      }
      case "decoding":
        if (this.#plan!.prefill !== null) {
          this.#state = "abandoning";
          return [...first, this.#waitAbandon()];
        }
        return [...first, { kind: "abort-decode", attempt }, ...this.#end(false, "closed")];
      case "streaming":
        return [...first, { kind: "abort-decode", attempt }, ...this.#end(false, "closed")];
      case "draining":
      case "abandoning":
      case "over":
        return [];
      default:
        return assertNever(this.#state);
    }
  }

  #deadline(nowMs: number): FlowEffect[] {
    const error = batonError("BATON_DEADLINE", `the deadline passed while ${this.#state}`);
    const kind = this.#state === "streaming" ? "break" : "respond";
    return this.#close({ end: "failed", code: error.code }, [{ kind, error }], nowMs);
  }

  #waited(): FlowEffect[] {
    if (this.#state === "draining") return this.#abortPrefill();
    return this.#state === "abandoning" ? this.#abandoned(false) : [];
  }

  #abandoned(isPulled: boolean): FlowEffect[] {
    const pulled = isPulled ? [this.#report({ kind: "first-byte", legMs: 0 })] : [];
    const abort: FlowEffect = { kind: "abort-decode", attempt: this.#attempt };
    return [...pulled, abort, ...this.#end(false, "closed between the legs")];
  }

  #abortPrefill(): FlowEffect[] {
    const failed = this.#prefillFailed(false, "closed");
    const abort: FlowEffect = { kind: "abort-prefill", attempt: this.#attempt };
    return [abort, failed, ...this.#end(false, "closed while prefilling")];
  }

  /** Plans again with a new attempt when one is left, else answers with `error`. */
  #retry(error: BatonError, workerFault: boolean): FlowEffect[] {
    if (this.#closedBy !== null || this.#attempt >= this.#options.attemptsMax) {
      return this.#fail(error, error.message, workerFault);
    }
    this.#failure = error;
    const stage = {
      end: "retried",
      workerFault,
      outputTokens: null,
      reason: error.message,
    } as const;
    return [this.#report({ kind: "ended", ...stage }), ...this.#begin()];
  }

  /** "Nobody left to try" is not what the client asks about after an attempt that failed. */
  #reasonFor(error: BatonError): BatonError {
    const isNobodyLeft =
      error.code === "BATON_NO_PREFILL_WORKER" || error.code === "BATON_NO_DECODE_WORKER";
    return isNobodyLeft && this.#failure !== null ? this.#failure : error;
  }

  #fail(error: BatonError, reason: string, workerFault = false): FlowEffect[] {
    if (this.#closedBy !== null) return this.#end(workerFault, reason);
    this.#closedBy = { end: "failed", code: error.code };
    return [{ kind: "respond", error }, ...this.#end(workerFault, reason)];
  }

  /** Ends the attempt and the request as `closedBy` says. */
  #end(workerFault: boolean, reason: string): FlowEffect[] {
    this.#state = "over";
    const by = this.#closedBy!;
    const stage = { end: by.end, workerFault, outputTokens: null, reason } as const;
    return [this.#report({ kind: "ended", ...stage }), { kind: "over", ...by }];
  }

  #prefillFailed(workerFault: boolean, reason: string): FlowEffect {
    return this.#report({ kind: "prefill-failed", workerFault, reason });
  }

  #report(stage: StageReport): FlowEffect {
    return { kind: "report", attempt: this.#attempt, stage };
  }

  #waitAbandon(): FlowEffect {
    return { kind: "wait", ms: this.#options.abandonMsMax };
  }

  #exclude(worker: WorkerAddress | null): void {
    if (worker !== null) this.#excluded.push(worker.workerId);
  }
}
