import type { KvFeedState } from "@baton/domain";
import { decodeKvBatch } from "@baton/kv-events";
import type { FeedEffect } from "./feed-protocol.ts";
import type { HeldMessage } from "./held-messages.ts";

/** What the sink was told since the last reset, and what it is to be told now. */
export class FeedOutput {
  #effects: FeedEffect[] = [];
  #state: KvFeedState = "init";
  #isDirty = false;
  #lossReason: string | null = null;
  #poisonReason: string | null = null;
  /** What was given may be of a life before the last reconnect; no replay has come past it yet. */
  isUnverified = false;

  get state(): KvFeedState {
    return this.#state;
  }

  /** Batches were given since the last reset. */
  get isDirty(): boolean {
    return this.#isDirty;
  }

  /** Messages are missing that no replay has brought; live ones are then given as they come. */
  get hasLoss(): boolean {
    return this.#lossReason !== null;
  }

  takeEffects(): readonly FeedEffect[] {
    const effects = this.#effects;
    this.#effects = [];
    return effects;
  }

  emit(effect: FeedEffect): void {
    this.#effects.push(effect);
  }

  /**
   * Gives one message on. One that cannot be read is left out and makes the feed lossy: a replay
   * would bring the same bytes. A clear after a loss voids what was given before, since what was
   * missed cannot matter any more; the result says so.
   */
  give(message: HeldMessage): { readonly isHealed: boolean } {
    const { sequence, payload } = message;
    const decoded = decodeKvBatch(payload);
    if (!decoded.ok) {
      this.emit({ kind: "undecodable", sequence, fault: decoded.error });
      this.#poisonReason = `message ${sequence} cannot be read: ${decoded.error.reason}`;
      if (this.#state === "live") this.setState("lossy", this.#poisonReason);
      return { isHealed: false };
    }
    const batch = decoded.value;
    const isLossy = this.hasLoss || this.#poisonReason !== null;
    const isHealed = isLossy && batch.events[0]?.kind === "cleared";
    if (isHealed) this.reset("cleared by the engine after a loss");
    this.#isDirty = true;
    this.emit({ kind: "batch", batch, sequence });
    return { isHealed };
  }

  reset(reason: string): void {
    if (this.#isDirty) this.emit({ kind: "reset", reason });
    this.#isDirty = false;
    this.isUnverified = false;
    this.#lossReason = null;
    this.#poisonReason = null;
  }

  becomeLossy(reason: string): void {
    this.#lossReason ??= reason;
    this.setState("lossy", reason);
  }

  becomeLive(reason: string): void {
    if (this.#poisonReason === null) this.setState("live", reason);
    else this.setState("lossy", this.#poisonReason);
  }

  setState(state: KvFeedState, reason: string): void {
    if (state === this.#state) return;
    this.#state = state;
    this.emit({ kind: "state", state, reason });
  }
}
