import type { KvBatch, KvFeedState } from "@baton/domain";

export interface KvFeedOptions {
  readonly workerId: string;
  /** PUB endpoint to connect to, `tcp://10.0.0.1:5557`; `tcp://*:5557` lets the engine dial in. */
  readonly endpoint: string;
  /** ROUTER endpoint for replay; null when the engine has none. */
  readonly replayEndpoint: string | null;
}

/** Called in stream order. A batch is given exactly once; `onReset` voids all given before. */
export interface KvFeedSink {
  onBatch(batch: KvBatch, sequence: bigint): void;
  /** Everything known of this stream is void: the engine restarted, or a hole cannot be filled. */
  onReset(reason: string): void;
  onState(state: KvFeedState, reason: string): void;
}

export interface KvFeed {
  state(): KvFeedState;
  close(): void;
}

export interface KvEventSource {
  open(options: KvFeedOptions, sink: KvFeedSink): KvFeed;
  close(): Promise<void>;
}
