import { createMemoryBus, type ObservedBus } from "@baton/bus";
import {
  createDecodeScheduler,
  type metricDefinitions as decodeMetrics,
} from "@baton/decode-scheduler";
import { tierWeightsFixed } from "@baton/domain";
import { createFrontend, type metricDefinitions as frontendMetrics } from "@baton/frontend";
import { Prng } from "@baton/kit";
import { ManualClock } from "@baton/kit/testing";
import { engineProfiles, profileDefault } from "@baton/perf-model";
import {
  FakeEngineClient,
  FakeKvEventSource,
  ManualTimers,
  MemoryLogger,
  MemoryMetrics,
  RecordingSink,
  turnTimers,
} from "@baton/ports/testing";
import {
  createPrefillScheduler,
  type metricDefinitions as prefillMetrics,
} from "@baton/prefill-scheduler";
import { FakeWorkers } from "@baton/scheduler-shell/testing";
import { DelayedBus } from "./delayed-bus.ts";
import { PlayedEngines } from "./played-engines.ts";

export interface WorldOptions {
  readonly seed: number;
  readonly requests: number;
  /**
   * calm: engines answer, messages take up to 20 ms, clients wait. rough: engines fail and hang,
   * messages overtake every deadline now and then, workers restart, the bus goes away and comes back,
   * clients leave at any moment.
   */
  readonly mood: "calm" | "rough";
}

const prefillIds = ["p0", "p1", "p2"];
const decodeIds = ["d0", "d1", "d2"];
const stepMs = 5;
const deadlineMs = 30_000;

/**
 * The shipped services on one memory bus with manual time; chance comes from `seed` alone, so that a
 * world can be played again.
 */
export class World {
  readonly #options: WorldOptions;
  readonly #prng: Prng;
  readonly #clock = new ManualClock();
  readonly timers = new ManualTimers(this.#clock);
  readonly #hub = createMemoryBus({ timers: turnTimers(this.timers) });
  readonly #buses: ObservedBus[] = [];
  readonly #workers = new FakeWorkers("m", [...prefillIds, ...decodeIds]);
  readonly engineClient = new FakeEngineClient();
  readonly #kv = new FakeKvEventSource();
  readonly engines: PlayedEngines;
  readonly logger = new MemoryLogger();
  readonly frontendMetrics = new MemoryMetrics<typeof frontendMetrics>();
  readonly prefillMetrics = new MemoryMetrics<typeof prefillMetrics>();
  readonly decodeMetrics = new MemoryMetrics<typeof decodeMetrics>();
  readonly frontendBus: DelayedBus;
  readonly #frontend: ReturnType<typeof createFrontend>;
  readonly prefill: ReturnType<typeof createPrefillScheduler>;
  readonly decode: ReturnType<typeof createDecodeScheduler>;
  readonly sinks = new Map<string, RecordingSink>();
  /** Requests that asked for a stream. */
  readonly streams = new Set<string>();

  constructor(options: WorldOptions) {
    this.#options = options;
    this.#prng = new Prng(options.seed);
    const isRough = options.mood === "rough";
    this.engines = new PlayedEngines({
      prng: this.#prng,
      timers: this.timers,
      kv: this.#kv,
      isFailing: isRough,
    });
    this.engineClient.onDispatch = this.engines.onDispatch;
    this.engineClient.onFetch = this.#workers.answer;
    const connect = (name: string) => {
      const bus = this.#hub.connect({ name });
      this.#buses.push(bus);
      return new DelayedBus(bus, {
        timers: this.timers,
        nowMs: () => this.#clock.nowMs(),
        delayMs: () => this.#delayMs(),
      });
    };
    const shared = {
      clock: this.#clock,
      timers: this.timers,
      logger: this.logger,
      engineClient: this.engineClient,
    };
    const pool = {
      model: "m",
      schedulerId: "s",
      pollIntervalMs: 500,
      pollTimeoutMs: 100,
      decisionsKept: 10_000,
      policy: "cost" as const,
      seed: options.seed,
    };
    const profile = engineProfiles[profileDefault]!;
    this.prefill = createPrefillScheduler(
      {
        ...pool,
        workers: workersOf(prefillIds, "prefill"),
        coefficients: profile.prefill,
        tierWeights: tierWeightsFixed,
        waitMsMax: 60_000,
      },
      {
        ...shared,
        metrics: this.prefillMetrics,
        bus: connect("prefill-scheduler"),
        kvEventSource: this.#kv,
      },
    );
    this.decode = createDecodeScheduler(
      {
        ...pool,
        workers: workersOf(decodeIds, "decode"),
        profile,
        linkBytesPerSecond: 25e9,
        outputTokensDefault: 64,
        handleLeaseMs: null,
      },
      {
        ...shared,
        metrics: this.decodeMetrics,
        bus: connect("decode-scheduler"),
        kvEventSource: null,
      },
    );
    this.frontendBus = connect("frontend");
    this.#frontend = createFrontend(
      {
        frontendId: "f0",
        incarnation: "1",
        tokenizerMode: "none",
        requestsLiveMax: 1_000,
        deadlineMs,
        attemptsMax: 3,
        placeDeadlineMs: 600_000,
        reserveDeadlineMs: 250,
        claimDeadlineMs: 2_000,
        drainMsMax: 200,
        abandonMsMax: 1_000,
        headersTimeoutMs: 10_000,
        bodyTimeoutMs: 10_000,
      },
      {
        ...shared,
        metrics: this.frontendMetrics,
        bus: this.frontendBus,
        tokenizer: { tokenize: async () => null, close: async () => {} },
      },
    );
  }

  /** Plays until every request is over and nothing is held any more, then closes everything. */
  async play(): Promise<void> {
    void this.#frontend.start();
    void this.prefill.start();
    void this.decode.start();
    await this.#run(1_500);
    const { requests, mood } = this.#options;
    for (let at = 0; at < requests; at++) this.#plan(`r${at}`, this.#prng.below(2_000));
    if (mood === "rough") {
      for (let at = 0; at < 4; at++) this.#planTrouble(this.#prng.below(2_500));
      if (this.#prng.next() < 0.4) this.#planOutage(this.#prng.below(2_500));
    }
    await this.#run(3_000);
    // What still goes on is a hang, a slow message or a wait: it ends with the request's deadline.
    for (let second = 0; second < deadlineMs / 1_000 + 10; second++) await this.#run(1_000, 250);
  }

  async close(): Promise<void> {
    const closing = Promise.all([
      this.#frontend.drain(0),
      this.prefill.drain(),
      this.decode.drain(),
    ]);
    await this.#run(20_000, 5_000);
    await closing;
  }

  /** All that happened and was decided, for a comparison of two worlds. */
  history() {
    const all = { requestId: null, limit: 10_000 };
    return {
      prefill: this.prefill.decisions(all).body,
      decode: this.decode.decisions(all).body,
      legs: this.engineClient.exchanges.map((each) => [
        each.call.workerId,
        each.call.headers,
        each.body,
      ]),
      answers: [...this.sinks].map(([requestId, sink]) => [requestId, sink.state, sink.text]),
    };
  }

  #plan(requestId: string, atMs: number): void {
    const family = this.#prng.below(4) * 100_000;
    const length = 16 + this.#prng.below(600);
    const prompt = Array.from({ length }, (_, at) => family + at);
    const isStream = this.#prng.next() < 0.7;
    const isWhole = this.#prng.next() < 0.1;
    const body = JSON.stringify({
      model: "m",
      prompt,
      ...(isStream ? { stream: true } : {}),
      ...(isWhole ? { n: 2 } : {}),
    });
    const sink = new RecordingSink();
    this.sinks.set(requestId, sink);
    if (isStream) this.streams.add(requestId);
    const isRough = this.#options.mood === "rough";
    const leavesAfterMs = isRough && this.#prng.next() < 0.4 ? this.#prng.below(800) : null;
    const isSlow = this.#prng.next() < 0.3;
    this.timers.after(atMs, () => {
      const request = { requestId, headers: {}, tenant: null, body: Buffer.from(body) };
      this.#frontend.generate({ ...request, route: "completions" }, sink);
      if (leavesAfterMs !== null) this.timers.after(leavesAfterMs, () => sink.leave());
      if (isSlow) this.#slowDown(sink, 20);
    });
  }

  /** A client that stops reading now and then. */
  #slowDown(sink: RecordingSink, times: number): void {
    if (times === 0 || sink.isOver) return;
    this.timers.after(this.#prng.below(100), () => {
      sink.isFull = true;
      this.timers.after(this.#prng.below(100), () => {
        if (!sink.isOver) sink.drain();
        this.#slowDown(sink, times - 1);
      });
    });
  }

  /** A worker restarts, or is away for a while and comes back with its cache. */
  #planTrouble(atMs: number): void {
    const ids = [...prefillIds, ...decodeIds];
    const worker = this.#workers.get(ids[this.#prng.below(ids.length)]!);
    const isRestart = this.#prng.next() < 0.5;
    this.timers.after(atMs, () => {
      if (isRestart) worker.processStartS! += 1;
      else {
        worker.isUp = false;
        this.timers.after(1_500, () => {
          worker.isUp = true;
        });
      }
    });
  }

  /** Messages of that time are lost. */
  #planOutage(atMs: number): void {
    this.timers.after(atMs, () => {
      this.#hub.interrupt();
      this.timers.after(100 + this.#prng.below(900), () => this.#hub.resume());
    });
  }

  #delayMs(): number {
    const draw = this.#prng.next();
    if (this.#options.mood === "rough" && draw < 0.012) return draw < 0.001 ? 2_500 : 300;
    return this.#prng.below(20);
  }

  async #run(ms: number, byMs = stepMs): Promise<void> {
    for (let left = ms; left > 0; left -= byMs) {
      this.timers.advance(byMs);
      await this.#rest();
    }
  }

  /** Until no message is on its way inside the process and no promise is left to run. */
  async #rest(): Promise<void> {
    for (let calm = 0; calm < 2; ) {
      await new Promise((resolve) => setImmediate(resolve));
      const isCalm = this.#buses.every((bus) => bus.stats().messagesPending === 0);
      calm = isCalm ? calm + 1 : 0;
    }
  }
}

function workersOf(workerIds: readonly string[], role: "prefill" | "decode") {
  return workerIds.map((workerId) => ({
    workerId,
    url: `http://${workerId}:8000`,
    role,
    dialect: "vllm" as const,
    connector: "nixl-pull",
    kvEvents: { kind: "auto" as const },
  }));
}
