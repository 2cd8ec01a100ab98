import type { KvBatch, KvEvent, KvFeedState } from "@baton/domain";
import type { KvEventSource, KvFeed, KvFeedOptions, KvFeedSink } from "../kv-event-source.ts";

/** Event streams that a test plays, one feed for each `open`. */
export class FakeKvEventSource implements KvEventSource {
  readonly feeds: FakeKvFeed[] = [];

  open(options: KvFeedOptions, sink: KvFeedSink): KvFeed {
    const feed = new FakeKvFeed(options, sink);
    this.feeds.push(feed);
    return feed;
  }

  /** The worker's open feed. */
  feedOf(workerId: string): FakeKvFeed | undefined {
    return this.feeds.findLast((feed) => feed.options.workerId === workerId && feed.isOpen);
  }

  close(): Promise<void> {
    for (const feed of this.feeds) feed.close();
    return Promise.resolve();
  }
}

export class FakeKvFeed implements KvFeed {
  readonly options: KvFeedOptions;
  readonly #sink: KvFeedSink;
  #state: KvFeedState = "init";
  #sequence = 0n;
  isOpen = true;

  constructor(options: KvFeedOptions, sink: KvFeedSink) {
    this.options = options;
    this.#sink = sink;
  }

  state(): KvFeedState {
    return this.#state;
  }

  close(): void {
    this.isOpen = false;
  }

  setState(state: KvFeedState, reason: string): void {
    this.#state = state;
    if (this.isOpen) this.#sink.onState(state, reason);
  }

  /** One message of the stream. After `close` nothing arrives. */
  push(events: readonly KvEvent[], skipped: KvBatch["skipped"] = {}): void {
    if (!this.isOpen) return;
    this.#sink.onBatch({ engineTimeS: 0, dpRank: null, events, skipped }, this.#sequence++);
  }

  reset(reason: string): void {
    if (this.isOpen) this.#sink.onReset(reason);
  }
}
