import type { BatonError, DecisionRecord, KvBatch, KvFeedState, Pool } from "@baton/domain";
import type { FleetChange, Probe } from "@baton/fleet";
import type { BusSubscription, GetAnswer, TimerHandle } from "@baton/ports";
import { decisionsQuery, frontendBeat, type MessageOf, outcome, subjectOf } from "@baton/protocol";
import { type WorkerWatch, watchWorkers } from "@baton/worker-watch";
import { DecisionLog } from "./decision-log.ts";
import { fleetPayload } from "./fleet-message.ts";
import { FrontendBeats, ownerOf } from "./frontend-beats.ts";
import { PoolGauges } from "./pool-gauges.ts";
import type { PoolSettings, SchedulerPool, SchedulerPorts } from "./pool-settings.ts";

const tickMs = 1_000;
/** Left for the envelope and NATS headers when an answer is fitted to the bus. */
const payloadMarginBytes = 4_096;

type Outcome = MessageOf<typeof outcome>;

/**
 * What both schedulers do alike: watch workers, hear frontends, tell the fleet, answer for decisions,
 * end what is overdue. Decisions are the pool's; this only carries messages to it.
 */
export class SchedulerShell {
  readonly decisions: DecisionLog;
  readonly #pool: Pool;
  readonly #settings: PoolSettings;
  readonly #ports: SchedulerPorts;
  readonly #state: SchedulerPool;
  readonly #gauges: PoolGauges;
  readonly #beats = new FrontendBeats();
  readonly #subscriptions: BusSubscription[] = [];
  readonly #onOutcome: (message: Outcome) => void;
  readonly #onBatch: (workerId: string, batch: KvBatch) => void;
  readonly #onReset: (workerId: string, reason: string) => void;
  readonly #onTick: () => void;
  #watch: WorkerWatch | null = null;
  #tick: TimerHandle | null = null;
  #isAsked = false;
  #isLeaving = false;

  constructor(options: {
    readonly pool: Pool;
    readonly settings: PoolSettings;
    readonly ports: SchedulerPorts;
    readonly state: SchedulerPool;
    onOutcome(message: Outcome): void;
    onBatch(workerId: string, batch: KvBatch): void;
    onReset(workerId: string, reason: string): void;
    /** Each second, after what is overdue has ended: for gauges of the pool's own. */
    onTick(): void;
  }) {
    this.#pool = options.pool;
    this.#settings = options.settings;
    this.#ports = options.ports;
    this.#state = options.state;
    this.#onOutcome = options.onOutcome;
    this.#onBatch = options.onBatch;
    this.#onReset = options.onReset;
    this.#onTick = options.onTick;
    this.decisions = new DecisionLog(options.settings.decisionsKept);
    this.#gauges = new PoolGauges(options.pool, options.ports.metrics);
    this.#gauges.seed(options.settings.workers.map(({ workerId }) => workerId));
    this.#gauges.set(options.state, 0);
  }

  /** Resolves when every worker was asked once; serving begins before, with what is known. */
  async start(): Promise<void> {
    const { bus, timers } = this.#ports;
    this.#subscriptions.push(
      bus.subscribe(this.subject("outcome"), {}, ({ payload }) => {
        const read = this.read(outcome.decode(payload));
        if (read === null) return;
        this.heard(read.frontend);
        this.#onOutcome(read);
      }),
      bus.subscribe(this.subject("frontend"), {}, ({ payload }) => this.#onBeat(payload)),
      bus.serve(this.subject("decisions"), { queue: "scheduler" }, ({ payload }) => {
        const query = this.read(decisionsQuery.decode(payload)) ?? { requestId: null, limit: 0 };
        return this.decisions.answer(query, bus.maxPayloadBytes - payloadMarginBytes);
      }),
    );
    this.#watch = watchWorkers({
      ...this.#settings,
      ...this.#ports,
      onProbe: (workerId, probe) => this.#onProbe(workerId, probe),
      onBatch: this.#onBatch,
      onReset: this.#onReset,
      onFeedState: (workerId, state, reason) => this.#onFeedState(workerId, state, reason),
    });
    this.#tick = timers.every(tickMs, () => this.#everySecond());
    await this.#watch.firstRound;
    this.#isAsked = true;
    this.#tellFleet();
    await bus.flush();
  }

  subject(verb: Parameters<typeof subjectOf>[2]): string {
    return subjectOf(this.#settings.model, this.#pool, verb);
  }

  serve(verb: "place" | "reserve" | "handle", handler: (payload: Uint8Array) => Uint8Array): void {
    const { bus } = this.#ports;
    this.#subscriptions.push(
      bus.serve(this.subject(verb), { queue: "scheduler" }, ({ payload }) => handler(payload)),
    );
  }

  /** A message, or null after counting why it cannot be read. */
  read<T>(decoded: { ok: true; value: T } | { ok: false; error: BatonError }): T | null {
    if (decoded.ok) return decoded.value;
    const { code, message } = decoded.error;
    this.#ports.metrics.counter("baton_bus_messages_refused_total", { code }).add();
    this.#ports.logger.warn({ code, problem: message }, "message refused");
    return null;
  }

  heard(frontend: Parameters<typeof ownerOf>[0]): string {
    const owner = ownerOf(frontend);
    this.#beats.heard(owner, this.#ports.clock.nowMs());
    return owner;
  }

  decided(record: DecisionRecord, error: BatonError | null): void {
    this.decisions.add(record);
    const labels = { pool: this.#pool, result: error?.code ?? "chosen" };
    this.#ports.metrics.counter("baton_scheduler_decisions_total", labels).add();
  }

  faulted(workerId: string): void {
    const labels = { pool: this.#pool, worker: workerId };
    this.#ports.metrics.counter("baton_worker_faults_total", labels).add();
    this.#watch?.probeNow(workerId);
  }

  /** What keeps requests from being served; empty when nothing does. */
  missing(): string[] {
    if (this.#isLeaving) return ["draining"];
    const missing: string[] = [];
    if (this.#ports.bus.state() !== "connected") missing.push(`bus is ${this.#ports.bus.state()}`);
    if (!this.#isAsked) missing.push("workers are being asked");
    const up = this.#state.fleet.workers().filter((worker) => worker.state === "up");
    if (this.#isAsked && up.length === 0) missing.push(`no ${this.#pool} worker is up`);
    return missing;
  }

  workersAnswer(): GetAnswer {
    const leases = this.#state.leasesByWorker();
    const workers = this.#state.fleet.workers().map((worker) => ({
      workerId: worker.config.workerId,
      url: worker.config.url,
      role: worker.config.role,
      connector: worker.config.connector,
      state: worker.state,
      reason: worker.reason,
      incarnation: worker.incarnation,
      version: worker.version,
      kvEvents: this.#gauges.feedState(worker.config.workerId),
      leases: leases.get(worker.config.workerId) ?? 0,
      signals: worker.signals,
    }));
    return { status: 200, body: { model: this.#settings.model, pool: this.#pool, workers } };
  }

  async drain(): Promise<void> {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    this.#tellFleet();
    this.#tick?.cancel();
    this.#watch?.close();
    await this.#ports.bus.drain();
  }

  #onBeat(payload: Uint8Array): void {
    const beat = this.read(frontendBeat.decode(payload));
    if (beat === null) return;
    const owner = ownerOf(beat.frontend);
    if (!beat.isLeaving) {
      this.#beats.heard(owner, this.#ports.clock.nowMs());
      return;
    }
    this.#beats.left(owner);
    this.#lost("frontend gone", this.#state.releaseOwner(owner, this.#ports.clock.nowMs()));
  }

  #onProbe(workerId: string, probe: Probe): readonly FleetChange[] {
    const { logger, metrics } = this.#ports;
    const held = this.#state.leasesByWorker().get(workerId) ?? 0;
    const changes = this.#state.applyProbe(workerId, probe);
    for (const change of changes) {
      if (change.kind === "state") logger.info({ pool: this.#pool, ...change }, "worker state");
      else if (change.ended !== null) {
        logger.warn({ pool: this.#pool, ...change }, "worker restarted");
        const labels = { pool: this.#pool, worker: change.workerId };
        metrics.counter("baton_worker_restarts_total", labels).add();
        this.#lost("worker restarted", held);
      }
    }
    if (changes.length > 0) this.#tellFleet();
    return changes;
  }

  #onFeedState(workerId: string, state: KvFeedState | "none", reason: string): void {
    this.#gauges.setFeedState(workerId, state);
    const level = state === "lossy" || state === "reset" ? "warn" : "debug";
    this.#ports.logger[level]({ workerId, state, reason }, "KV event feed");
  }

  #everySecond(): void {
    const nowMs = this.#ports.clock.nowMs();
    // While the bus is away, frontends stream on and cannot say so.
    if (this.#ports.bus.state() !== "connected") this.#beats.excuse(nowMs);
    for (const owner of this.#beats.takeSilent(nowMs)) {
      this.#lost("frontend gone", this.#state.releaseOwner(owner, nowMs));
    }
    this.#lost("deadline", this.#state.sweep(nowMs));
    this.#tellFleet();
    this.#gauges.set(this.#state, this.#beats.count);
    this.#onTick();
  }

  #lost(cause: "deadline" | "frontend gone" | "worker restarted", count: number): void {
    if (count === 0) return;
    const labels = { pool: this.#pool, cause };
    this.#ports.metrics.counter("baton_scheduler_leases_lost_total", labels).add(count);
    this.#ports.logger.warn(
      { pool: this.#pool, cause, count },
      "leases ended without their outcome",
    );
  }

  #tellFleet(): void {
    const payload = fleetPayload({
      pool: this.#pool,
      settings: this.#settings,
      state: this.#state,
      isLeaving: this.#isLeaving,
    });
    const sent = this.#ports.bus.publish(this.subject("fleet"), payload);
    if (sent.ok) return;
    const { code, message } = sent.error;
    // Too large a pool stays silent until somebody acts; an outage ends by itself.
    const level = code === "BATON_BUS_PAYLOAD_TOO_LARGE" ? "error" : "debug";
    this.#ports.logger[level]({ code, problem: message }, "fleet not told");
  }
}
