import { SequenceTracker } from "@baton/kv-events";
import type { KvFeedLimits } from "./feed-limits.ts";
import { FeedOutput } from "./feed-output.ts";
import { type HeldMessage, HeldMessages } from "./held-messages.ts";
import { Recovery, type Replay } from "./recovery.ts";

/**
 * How far before the newest message the proof starts after a reconnect. Messages may overtake the
 * news of it, and a new life may by chance go on at our number: older messages tell.
 */
const reconnectProofBack = 31;

/** What can be done to a feed, each leaving it whole; `FeedMachine` says when. */
export class FeedActions {
  readonly hasReplay: boolean;
  readonly output = new FeedOutput();
  readonly tracker = new SequenceTracker();
  readonly recovery: Recovery;
  readonly #held: HeldMessages;
  nowMs = 0;
  isConnected = false;

  constructor(options: { hasReplay: boolean; limits: KvFeedLimits }) {
    this.hasReplay = options.hasReplay;
    this.recovery = new Recovery(options.limits);
    this.#held = new HeldMessages(options.limits.heldMessagesMax, options.limits.heldBytesMax);
  }

  deliver(message: HeldMessage): void {
    const isRecovering = !this.output.hasLoss && this.recovery.replay !== null;
    this.tracker.advance(message.sequence, message.mark);
    const { isHealed } = this.output.give(message);
    if (isHealed && !isRecovering) this.settle();
  }

  /** Keeps a live message until what is before it is here, and sees to it that it comes. */
  hold(message: HeldMessage): void {
    this.#held.push(message);
    if (!this.isConnected) return;
    const replay = this.recovery.replay;
    if (replay === null) this.ask({ fromStart: false, isQuiet: false });
    else if (replay.isQuiet) {
      replay.isQuiet = false;
      this.output.setState("replay", this.missing(message));
    }
  }

  /**
   * Gives on what was held and is next now. Only at the end of a replay: what that one brings
   * itself is of the engine that speaks now, what was held may be the rest of one that is gone.
   */
  drainHeld(): void {
    for (let held = this.#held.first(); held !== undefined; held = this.#held.first()) {
      const verdict = this.tracker.place(held.sequence, held.mark);
      if (verdict === "gap") return;
      if (verdict === "restart") {
        this.anotherLife(`another message ${held.sequence}`);
        return;
      }
      this.#held.shift();
      if (verdict === "accept") this.deliver(held);
    }
  }

  ask(options: { fromStart: boolean; isQuiet: boolean }): void {
    const back = this.output.isUnverified ? reconnectProofBack : 0;
    const known = options.fromStart ? null : this.tracker.known(back);
    const from = known?.sequence ?? 0n;
    const knownMark = known?.mark ?? null;
    const { liveNewest } = this.tracker;
    const isQuiet = options.isQuiet;
    const replay = this.recovery.begin({ from, knownMark, liveNewest, isQuiet });
    if (!isQuiet) this.output.setState("replay", `from ${from}`);
    this.output.emit({ kind: "ask", attempt: replay.attempt, from });
  }

  /** The attempt brings no more: ask again, or go on without after too many or too long. */
  retry(replay: Replay, reason: string): void {
    this.stopReplay();
    const isProbe = replay.isQuiet && !this.output.hasLoss;
    // Nothing is known to be missing: an engine that answers no probe is none the worse.
    if (isProbe && !replay.hasProgressed) this.settle();
    else if (this.recovery.shouldRepeat(replay, this.nowMs)) {
      const fromStart = replay.knownMark === null && !replay.isAnswered;
      this.ask({ fromStart, isQuiet: replay.isQuiet });
    } else this.#giveUp(reason);
  }

  /** Nothing is missing that is known of; look again in a while. */
  settle(): void {
    this.stopReplay();
    if (this.hasReplay) this.recovery.watch(this.nowMs);
    this.output.becomeLive(this.hasReplay ? "nothing is missing" : "taken as it comes");
  }

  /** Same life or not known yet, read from its start or from `next`. */
  beginAnew(next: bigint | null): void {
    const hadLoss = this.output.hasLoss;
    this.output.reset("replayed from the start");
    this.tracker.rewind(next);
    const replay = this.recovery.replay;
    if (!hadLoss || replay === null) return;
    replay.isQuiet = false;
    this.output.setState("replay", "from 0");
  }

  /** All that was given is void, and nothing is known of the engine that speaks now. */
  anotherLife(reason: string): void {
    this.stopReplay();
    this.recovery.end();
    this.#held.clear();
    this.tracker.restart();
    this.output.reset(reason);
    this.output.setState("reset", reason);
    if (!this.hasReplay) this.settle();
    else if (this.isConnected) this.ask({ fromStart: true, isQuiet: false });
  }

  /** Live messages heard so far are not of this life. */
  forgetLive(): void {
    this.#held.clear();
    this.tracker.forgetLive();
  }

  stopReplay(): void {
    const replay = this.recovery.replay;
    if (replay === null) return;
    this.output.emit({ kind: "stop", attempt: replay.attempt });
    this.recovery.replay = null;
  }

  missing(message: HeldMessage): string {
    return `messages ${this.tracker.next ?? 0n} to ${message.sequence - 1n} are missing`;
  }

  #giveUp(reason: string): void {
    this.recovery.coolDown(this.nowMs);
    if (this.output.isUnverified) {
      this.output.reset("reconnected, and the replay does not prove that it is the same engine");
      this.tracker.rewind(null);
    }
    this.output.becomeLossy(reason);
    for (let held = this.#held.first(); held !== undefined; held = this.#held.first()) {
      const verdict = this.tracker.place(held.sequence, held.mark);
      // A clear among them has healed the feed: from there on gaps count again.
      if (verdict === "gap" && !this.output.hasLoss) {
        this.ask({ fromStart: false, isQuiet: false });
        return;
      }
      this.#held.shift();
      if (verdict !== "duplicate") this.deliver(held);
    }
  }
}
