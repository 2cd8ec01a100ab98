import type { KvBatch, KvFeedState } from "@baton/domain";
import type { FleetChange, Probe } from "@baton/fleet";
import type {
  Clock,
  EngineClient,
  KvEventSource,
  KvFeed,
  KvFeedSink,
  Logger,
  TimerHandle,
  Timers,
} from "@baton/ports";
import { type KvEndpoints, type KvEventsConfig, readKvEventSources } from "./kv-event-sources.ts";
import { type ProbeTarget, probeWorker } from "./probe-worker.ts";

export interface WatchedWorker extends ProbeTarget {
  readonly kvEvents: KvEventsConfig;
}

export interface WorkerWatchOptions {
  readonly workers: readonly WatchedWorker[];
  readonly pollIntervalMs: number;
  readonly pollTimeoutMs: number;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly logger: Logger;
  readonly engineClient: EngineClient;
  /** Null: this pool has no use for events. */
  readonly kvEventSource: KvEventSource | null;
  /** Applies the probe; the changes tell whether a new life began. */
  onProbe(workerId: string, probe: Probe): readonly FleetChange[];
  onBatch(workerId: string, batch: KvBatch): void;
  onReset(workerId: string, reason: string): void;
  onFeedState(workerId: string, state: KvFeedState | "none", reason: string): void;
}

export interface WorkerWatch {
  /** Resolves when every worker has been asked once. */
  readonly firstRound: Promise<void>;
  /** Asks one worker now, e.g. after a failed request. */
  probeNow(workerId: string): void;
  close(): void;
}

/**
 * Polls each worker and follows its KV events. A feed is opened when a life begins and opened anew for
 * the next one, so that its replay fills the empty index of that life.
 */
export function watchWorkers(options: WorkerWatchOptions): WorkerWatch {
  const watches = new Map(options.workers.map((each) => [each.workerId, new Watch(each, options)]));
  const firstRound = Promise.all([...watches.values()].map((watch) => watch.probe()));
  const ticks: TimerHandle[] = [...watches.values()].map((watch) =>
    options.timers.every(options.pollIntervalMs, () => void watch.probe()),
  );
  return {
    firstRound: firstRound.then(() => undefined),
    probeNow: (workerId) => void watches.get(workerId)?.probe(),
    close() {
      for (const tick of ticks) tick.cancel();
      for (const watch of watches.values()) watch.close();
    },
  };
}

class Watch {
  readonly #worker: WatchedWorker;
  readonly #options: WorkerWatchOptions;
  #isProbing = false;
  #isClosed = false;
  #feed: KvFeed | null = null;

  constructor(worker: WatchedWorker, options: WorkerWatchOptions) {
    this.#worker = worker;
    this.#options = options;
  }

  async probe(): Promise<void> {
    if (this.#isProbing || this.#isClosed) return;
    this.#isProbing = true;
    try {
      const probe = await probeWorker(this.#worker, this.#options, this.#options.pollTimeoutMs);
      if (this.#isClosed) return;
      const changes = this.#options.onProbe(this.#worker.workerId, probe);
      if (changes.some((change) => change.kind === "incarnation")) await this.#openFeed();
    } finally {
      this.#isProbing = false;
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#feed?.close();
    this.#feed = null;
  }

  async #openFeed(): Promise<void> {
    const { workerId } = this.#worker;
    const { kvEventSource } = this.#options;
    this.#feed?.close();
    this.#feed = null;
    if (kvEventSource === null) return;
    const endpoints = await this.#endpoints();
    if (this.#isClosed) return;
    if (endpoints === null) {
      this.#followNone(
        this.#worker.kvEvents.kind === "off"
          ? "switched off in the configuration"
          : "the engine announces none: start it with --kv-events-config",
      );
      return;
    }
    const sink: KvFeedSink = {
      onBatch: (batch) => this.#options.onBatch(workerId, batch),
      onReset: (reason) => {
        this.#options.onReset(workerId, reason);
        void this.probe();
      },
      onState: (state, reason) => this.#options.onFeedState(workerId, state, reason),
    };
    try {
      this.#feed = kvEventSource.open({ workerId, ...endpoints }, sink);
    } catch (error) {
      // The address is the engine's word: one odd engine must not end the scheduler.
      const problem = error instanceof Error ? error.message : String(error);
      this.#followNone(`${endpoints.endpoint} cannot be listened to: ${problem}`);
    }
  }

  #followNone(reason: string): void {
    const { workerId } = this.#worker;
    this.#options.logger.warn(
      { workerId, reason },
      "worker without KV events: no overlap knowledge",
    );
    this.#options.onFeedState(workerId, "none", reason);
  }

  async #endpoints(): Promise<KvEndpoints | null> {
    const { kvEvents, workerId, url } = this.#worker;
    switch (kvEvents.kind) {
      case "off":
        return null;
      case "endpoint":
        return kvEvents;
      case "auto": {
        const answer = await this.#options.engineClient.fetchText({
          workerId,
          url,
          method: "GET",
          path: "/kv_event_sources",
          timeoutMs: this.#options.pollTimeoutMs,
          bodyLimitBytes: 1024 * 1024,
        });
        if (!answer.ok || answer.value.status !== 200) return null;
        return readKvEventSources(answer.value.text, url);
      }
    }
  }
}
