import type { KvFeedState } from "@baton/domain";
import {
  parseLiveFrames,
  parseReplayFrames,
  payloadBytesMax,
  replayRequestFrames,
} from "@baton/kv-events";
import type {
  Clock,
  KvFeed,
  KvFeedOptions,
  KvFeedSink,
  Logger,
  TimerHandle,
  Timers,
} from "@baton/ports";
import { Dealer, Subscriber } from "zeromq";
import type { KvFeedLimits } from "./feed-limits.ts";
import { FeedMachine } from "./feed-machine.ts";
import type { FeedEffect, FeedEvent } from "./feed-protocol.ts";
import { received } from "./received.ts";
import type { ReplaySlots } from "./replay-slots.ts";
import { Turns } from "./turns.ts";

export interface ZmqFeedContext {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly logger: Logger;
  readonly limits: KvFeedLimits;
  readonly slots: ReplaySlots;
}

/**
 * Messages in libzmq's queue for us. Moderate: what a slow moment loses is replayed, and memory
 * stays bounded. A replay's answer comes at once and whole, so its queue takes an engine's ring of
 * 10,000.
 */
const liveQueueMessages = 1_000;
const replayQueueMessages = 10_001;

const listenRetryMs = 5_000;

/** Dead peers are found by the kernel: not every engine's ZMQ answers protocol heartbeats. */
const connection = {
  linger: 0,
  maxMessageSize: payloadBytesMax,
  tcpKeepalive: 1,
  tcpKeepaliveIdle: 30,
  tcpKeepaliveInterval: 10,
  tcpKeepaliveCount: 3,
} as const;

/** One engine's sockets around a `FeedMachine`. Open after `start`, until `close`. */
export class ZmqFeed implements KvFeed {
  readonly #context: ZmqFeedContext;
  readonly #options: KvFeedOptions;
  readonly #sink: KvFeedSink;
  readonly #machine: FeedMachine;
  readonly #logger: Logger;
  readonly #subscriber: Subscriber;
  readonly #loops = new Set<Promise<void>>();
  #listenTimer: TimerHandle | null = null;
  #timer: TimerHandle | null = null;
  #timerAtMs = Number.POSITIVE_INFINITY;
  #replay: { readonly attempt: number; readonly stop: () => void } | null = null;
  #malformed = 0;
  #isClosed = false;

  constructor(context: ZmqFeedContext, options: KvFeedOptions, sink: KvFeedSink) {
    this.#context = context;
    this.#options = options;
    this.#sink = sink;
    this.#logger = context.logger.child({ workerId: options.workerId, endpoint: options.endpoint });
    const hasReplay = options.replayEndpoint !== null;
    this.#machine = new FeedMachine({ hasReplay, limits: context.limits });
    this.#subscriber = new Subscriber({
      ...connection,
      receiveHighWaterMark: liveQueueMessages,
      reconnectInterval: 100,
      reconnectMaxInterval: 2_000,
    });
  }

  /** Throws when the endpoint is no ZeroMQ address. */
  start(): void {
    this.#track(this.#watchConnection());
    this.#track(this.#readLive());
    this.#subscriber.subscribe();
    // As engines do with their side: a wildcard listens, and the engine dials in.
    if (this.#options.endpoint.includes("*")) this.#track(this.#listen());
    else this.#subscriber.connect(this.#options.endpoint);
  }

  state(): KvFeedState {
    return this.#machine.state;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#listenTimer?.cancel();
    this.#replay?.stop();
    this.#subscriber.close();
  }

  /** Resolves when no loop of this feed runs any more. */
  async closed(): Promise<void> {
    await Promise.all(this.#loops);
  }

  /** A rejection is a fault of ours and ends the process: nobody handles it. */
  #track(loop: Promise<void>): void {
    const tracked = loop.then(() => {
      this.#loops.delete(tracked);
    });
    this.#loops.add(tracked);
  }

  async #listen(): Promise<void> {
    try {
      await this.#subscriber.bind(this.#options.endpoint);
    } catch (error) {
      if (this.#isClosed) return;
      this.#logger.error({ error }, "cannot listen for KV events, trying again");
      this.#listenTimer = this.#context.timers.after(listenRetryMs, () => {
        this.#track(this.#listen());
      });
    }
  }

  async #watchConnection(): Promise<void> {
    // To the monitor's last event even when closed, since that one frees it.
    for await (const event of received(this.#subscriber.events)) {
      if (this.#isClosed) continue;
      if (event.type === "handshake") this.#apply({ kind: "connected" });
      else if (event.type === "disconnect") this.#apply({ kind: "disconnected" });
    }
  }

  async #readLive(): Promise<void> {
    const turns = new Turns();
    for await (const frames of received(this.#subscriber)) {
      if (this.#isClosed) return;
      const message = parseLiveFrames(frames);
      if (message.ok) {
        const { sequence, payload, epoch } = message.value;
        this.#apply({ kind: "live", sequence, payload, epoch });
      } else this.#countMalformed(message.error);
      await turns.next();
    }
  }

  #apply(event: FeedEvent): void {
    for (const effect of this.#machine.apply(event, this.#context.clock.nowMs())) {
      // A sink may close the feed that calls it.
      if (this.#isClosed) return;
      this.#perform(effect);
    }
    this.#setTimer();
  }

  #perform(effect: FeedEffect): void {
    switch (effect.kind) {
      case "batch":
        this.#sink.onBatch(effect.batch, effect.sequence);
        return;
      case "reset":
        this.#sink.onReset(effect.reason);
        return;
      case "state":
        this.#sink.onState(effect.state, effect.reason);
        return;
      case "ask":
        this.#startReplay(effect.attempt, effect.from);
        return;
      case "stop":
        if (this.#replay?.attempt === effect.attempt) this.#replay.stop();
        return;
      case "undecodable": {
        const { reason, offsetBytes } = effect.fault;
        const fields = { sequence: String(effect.sequence), reason, offsetBytes };
        this.#logger.warn(fields, "KV event payload cannot be read");
      }
    }
  }

  /**
   * One timer, armed for the earliest deadline; one that moved later is found on its early call.
   */
  #setTimer(): void {
    const deadlineMs = this.#machine.deadlineMs;
    if (this.#isClosed || deadlineMs === null || deadlineMs >= this.#timerAtMs) return;
    this.#timer?.cancel();
    this.#timerAtMs = deadlineMs;
    const delayMs = Math.max(0, deadlineMs - this.#context.clock.nowMs());
    this.#timer = this.#context.timers.after(delayMs, () => {
      this.#timerAtMs = Number.POSITIVE_INFINITY;
      this.#apply({ kind: "tick" });
    });
  }

  /** A DEALER of its own for each attempt: nothing of an earlier one can arrive in it. */
  #startReplay(attempt: number, from: bigint): void {
    let dealer: Dealer | null = null;
    const giveBack = this.#context.slots.take(() => {
      dealer = new Dealer({ ...connection, receiveHighWaterMark: replayQueueMessages });
      this.#track(this.#runReplay(dealer, attempt, from));
    });
    const stop = () => {
      this.#replay = null;
      dealer?.close();
      giveBack();
    };
    this.#replay = { attempt, stop };
  }

  async #runReplay(dealer: Dealer, attempt: number, from: bigint): Promise<void> {
    // Off the caller's stack: the attempt must be known before anything happens to it.
    await null;
    if (dealer.closed) return;
    this.#apply({ kind: "replay-started", attempt });
    try {
      dealer.connect(this.#options.replayEndpoint!);
      await dealer.send(replayRequestFrames(from));
    } catch (error) {
      // The machine hears nothing, then, and does what it does for a silent engine.
      if (!dealer.closed) this.#logger.error({ error }, "replay endpoint cannot be used");
      return;
    }
    const turns = new Turns();
    for await (const frames of received(dealer)) {
      const message = parseReplayFrames(frames);
      if (!message.ok) this.#countMalformed(message.error);
      else if (message.value.kind === "end") this.#apply({ kind: "replay-end", attempt });
      else this.#apply({ ...message.value, kind: "replay-batch", attempt });
      await turns.next();
      if (dealer.closed) return;
    }
  }

  /** Logged at the 1st, 2nd, 4th, 8th …: a peer that is no engine must not fill the log. */
  #countMalformed(reason: string): void {
    this.#malformed += 1;
    const isPowerOfTwo = (this.#malformed & (this.#malformed - 1)) === 0;
    if (!isPowerOfTwo) return;
    this.#logger.warn({ reason, count: this.#malformed }, "message is not of a KV event stream");
  }
}
