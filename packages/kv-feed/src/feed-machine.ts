import type { KvFeedState } from "@baton/domain";
import { payloadMark } from "@baton/kv-events";
import { FeedActions } from "./feed-actions.ts";
import type { KvFeedLimits } from "./feed-limits.ts";
import type { FeedEffect, FeedEvent } from "./feed-protocol.ts";
import type { HeldMessage } from "./held-messages.ts";
import type { Replay } from "./recovery.ts";

/**
 * Keeps one engine's event stream whole; pure, all I/O is in the effects. README.md has the rules.
 *
 * A replay is never asked from the first missing message but from the last one we have. The answer
 * proves that the same engine life speaks (same number, same content) before anything is added to
 * what we know; else all of it is void. This is what catches an engine that restarted and has since
 * counted past us, or that came back idle and sends nothing.
 */
export class FeedMachine {
  readonly #limits: KvFeedLimits;
  readonly #actions: FeedActions;
  #wasConnected = false;
  #downSinceMs = Number.NEGATIVE_INFINITY;
  #liveAtMs = Number.NEGATIVE_INFINITY;
  #epoch: string | null = null;

  constructor(options: { hasReplay: boolean; limits: KvFeedLimits }) {
    this.#limits = options.limits;
    this.#actions = new FeedActions(options);
  }

  get state(): KvFeedState {
    return this.#actions.output.state;
  }

  /** When `tick` is due; null while nothing is awaited. Changes with every `apply`. */
  get deadlineMs(): number | null {
    return this.#actions.recovery.deadlineMs;
  }

  apply(event: FeedEvent, nowMs: number): readonly FeedEffect[] {
    this.#actions.nowMs = nowMs;
    switch (event.kind) {
      case "connected":
        this.#onConnected();
        break;
      case "disconnected":
        this.#onDisconnected();
        break;
      case "live":
        this.#onLive(event);
        break;
      case "tick":
        this.#onTick();
        break;
      default:
        this.#onReplay(event);
    }
    return this.#actions.output.takeEffects();
  }

  #onConnected(): void {
    const { output, recovery } = this.#actions;
    const isFirst = !this.#wasConnected;
    this.#wasConnected = true;
    this.#actions.isConnected = true;
    this.#actions.stopReplay();
    recovery.reconnected();
    if (this.#actions.hasReplay) {
      output.setState("subscribed", "connected");
      output.isUnverified = output.isDirty;
      this.#actions.ask({ fromStart: output.hasLoss, isQuiet: false });
    } else if (isFirst) this.#actions.settle();
    else this.#actions.anotherLife("reconnected, and without replay nothing proves who it is");
  }

  #onDisconnected(): void {
    if (!this.#actions.isConnected) return;
    this.#actions.isConnected = false;
    this.#downSinceMs = this.#actions.nowMs;
    this.#actions.stopReplay();
    this.#actions.recovery.end();
    this.#actions.output.setState("init", "connection lost");
  }

  #onLive(event: FeedEvent & { kind: "live" }): void {
    const { hasReplay, nowMs, output, tracker } = this.#actions;
    // The monitor may lose an event: then messages are the sign of the connection.
    const isLate = nowMs - this.#downSinceMs >= this.#limits.disconnectGraceMs;
    if (!this.#actions.isConnected && isLate) this.#onConnected();
    this.#liveAtMs = nowMs;
    const { sequence, payload, epoch } = event;
    const message = { sequence, payload, mark: payloadMark(payload) };
    this.#compareEpoch(epoch);
    let verdict = tracker.live(sequence, message.mark);
    if (verdict === "restart") {
      this.#actions.anotherLife(`the stream went back to ${sequence}`);
      verdict = tracker.live(sequence, message.mark);
    }
    if (verdict === "duplicate") return;
    const isNext = verdict === "accept" && tracker.next !== null;
    if (!isNext && !output.hasLoss && hasReplay) {
      this.#actions.hold(message);
      return;
    }
    if (verdict === "gap" && !hasReplay) {
      output.becomeLossy(`${this.#actions.missing(message)}, without replay`);
    }
    this.#actions.deliver(message);
  }

  #compareEpoch(epoch: string | null): void {
    if (epoch === null || epoch === this.#epoch) return;
    if (this.#epoch !== null) this.#actions.anotherLife(`epoch ${this.#epoch} became ${epoch}`);
    this.#epoch = epoch;
  }

  #onReplay(event: Extract<FeedEvent, { attempt: number }>): void {
    const { nowMs, recovery } = this.#actions;
    const replay = recovery.replay;
    if (replay === null || replay.attempt !== event.attempt) return;
    if (event.kind === "replay-started") recovery.started(nowMs);
    else if (event.kind === "replay-end") this.#onReplayEnd(replay);
    else {
      replay.heardMs = nowMs;
      const { sequence, payload } = event;
      this.#onReplayBatch(replay, { sequence, payload, mark: payloadMark(payload) });
    }
  }

  #onReplayBatch(replay: Replay, message: HeldMessage): void {
    if (!replay.isAnswered && !this.#acceptAnswer(replay, message)) return;
    const verdict = this.#actions.tracker.place(message.sequence, message.mark);
    if (verdict === "accept") {
      replay.hasProgressed = true;
      this.#actions.output.isUnverified = false;
      this.#actions.deliver(message);
    } else if (verdict === "gap") {
      this.#actions.retry(replay, `${this.#actions.missing(message)} in the replay`);
    } else if (verdict === "restart") {
      this.#actions.anotherLife(`another message ${message.sequence}`);
    }
  }

  /** The first message of a replay says whether it belongs to what we have. */
  #acceptAnswer(replay: Replay, message: HeldMessage): boolean {
    const { from, knownMark } = replay;
    replay.isAnswered = true;
    if (knownMark === null) this.#actions.beginAnew(null);
    else if (message.sequence !== from) {
      this.#actions.anotherLife(`asked from ${from}, the replay starts at ${message.sequence}`);
      return false;
    } else if (message.mark !== knownMark) {
      this.#actions.anotherLife(`the engine has another message ${from}`);
      return false;
    }
    return true;
  }

  #onReplayEnd(replay: Replay): void {
    const { output, recovery, tracker } = this.#actions;
    if (!replay.isAnswered && !this.#acceptEmptyAnswer(replay)) return;
    output.isUnverified = false;
    this.#actions.drainHeld();
    if (recovery.replay !== replay) return;
    if (!tracker.isBehindLive) this.#actions.settle();
    else if (this.#isLiveOfAnotherLife(replay)) {
      this.#actions.forgetLive();
      this.#actions.settle();
    } else this.#actions.retry(replay, "the replay ended before the live stream");
  }

  #acceptEmptyAnswer(replay: Replay): boolean {
    const { output } = this.#actions;
    if (replay.knownMark !== null) {
      this.#actions.anotherLife(`the engine has no message ${replay.from} any more`);
      return false;
    }
    if (!this.#isFlowing) this.#actions.forgetLive();
    else if (output.hasLoss && !output.isUnverified) {
      this.#actions.retry(replay, "the replay is empty, the stream is not");
      return false;
    }
    // Nothing was ever sent. Engines that count from their clock show a gap then, and are asked.
    this.#actions.beginAnew(0n);
    return true;
  }

  /**
   * Live messages from before the request, which an answered replay to the end has not: left in our
   * socket by an engine that is gone. Only where asking again brought nothing.
   */
  #isLiveOfAnotherLife(replay: Replay): boolean {
    const { recovery, tracker } = this.#actions;
    const isKnown = replay.liveNewest !== null && tracker.next !== null;
    const isStale = isKnown && replay.liveNewest >= tracker.next;
    return isStale && replay.isAnswered && recovery.hasStalled;
  }

  /** What a dead engine left in our socket has passed after so long. */
  get #isFlowing(): boolean {
    return this.#actions.nowMs - this.#liveAtMs < this.#limits.replayCooldownMs;
  }

  #onTick(): void {
    const { nowMs, recovery } = this.#actions;
    const deadlineMs = this.deadlineMs;
    if (deadlineMs === null || nowMs < deadlineMs) return;
    if (recovery.replay !== null) {
      this.#actions.retry(recovery.replay, "no answer to the replay request");
    } else if (recovery.isCoolingDown) this.#actions.ask({ fromStart: true, isQuiet: true });
    else if (recovery.mustProbe(nowMs, this.#liveAtMs)) {
      this.#actions.ask({ fromStart: false, isQuiet: true });
    }
  }
}
