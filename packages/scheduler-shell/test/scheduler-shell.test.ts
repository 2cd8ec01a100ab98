import { createMemoryBus } from "@baton/bus";
import type { DecisionRecord, KvBatch } from "@baton/domain";
import { Fleet, type FleetChange, type Probe } from "@baton/fleet";
import { ManualClock } from "@baton/kit/testing";
import {
  FakeEngineClient,
  FakeKvEventSource,
  ManualTimers,
  MemoryLogger,
  MemoryMetrics,
  settle,
  turnTimers,
} from "@baton/ports/testing";
import { decisionsAnswer, type MessageOf, type outcome } from "@baton/protocol";
import {
  DecisionLog,
  type SchedulerPool,
  SchedulerShell,
  type schedulerMetricDefinitions,
} from "@baton/scheduler-shell";
import { FakeFrontend, FakeWorkers } from "@baton/scheduler-shell/testing";
import t, { type Test } from "tap";

/** A pool that counts leases and decides nothing. */
class CountingPool implements SchedulerPool {
  readonly fleet: Fleet;
  /** Owner of each lease, by worker. */
  readonly leases = new Map<string, string[]>();
  overdue = 0;
  blockSizes: number[] = [16];

  constructor(fleet: Fleet) {
    this.fleet = fleet;
  }

  applyProbe(workerId: string, probe: Probe): FleetChange[] {
    const changes = this.fleet.applyProbe(workerId, probe);
    const isNew = changes.some((each) => each.kind === "incarnation" && each.ended !== null);
    if (isNew) this.leases.delete(workerId);
    return changes;
  }

  releaseOwner(owner: string): number {
    let count = 0;
    for (const [worker, owners] of this.leases) {
      const left = owners.filter((each) => each !== owner);
      count += owners.length - left.length;
      this.leases.set(worker, left);
    }
    return count;
  }

  sweep(): number {
    const { overdue } = this;
    this.overdue = 0;
    return overdue;
  }

  leasesByWorker(): ReadonlyMap<string, number> {
    return new Map([...this.leases].map(([worker, owners]) => [worker, owners.length]));
  }

  indexBlockSizes(): number[] {
    return this.blockSizes;
  }
}

const workers = ["p0", "p1"].map((workerId) => ({
  workerId,
  url: `http://${workerId}:8000`,
  role: "prefill" as const,
  dialect: "vllm" as const,
  connector: "nixl-pull",
  kvEvents: { kind: "auto" as const },
}));

async function open(t: Test, options: { readonly maxPayloadBytes?: number } = {}) {
  const clock = new ManualClock();
  const timers = new ManualTimers(clock);
  const logger = new MemoryLogger();
  const metrics = new MemoryMetrics<typeof schedulerMetricDefinitions>();
  const hub = createMemoryBus({ timers: turnTimers(timers), ...options });
  const engines = new FakeWorkers("m", ["p0", "p1"]);
  const engineClient = new FakeEngineClient();
  engineClient.onFetch = engines.answer;
  const kvEventSource = new FakeKvEventSource();
  const pool = new CountingPool(new Fleet({ model: "m", workers }));
  const outcomes: MessageOf<typeof outcome>[] = [];
  const batches: [string, KvBatch][] = [];
  const resets: string[] = [];
  const bus = hub.connect({ name: "scheduler" });
  const shell = new SchedulerShell({
    pool: "prefill",
    settings: {
      model: "m",
      schedulerId: "s0",
      workers,
      pollIntervalMs: 500,
      pollTimeoutMs: 100,
      decisionsKept: 20_000,
    },
    ports: { clock, timers, logger, metrics, bus, engineClient, kvEventSource },
    state: pool,
    onOutcome: (message) => outcomes.push(message),
    onBatch: (workerId, batch) => batches.push([workerId, batch]),
    onReset: (workerId, reason) => resets.push(`${workerId} ${reason}`),
    onTick() {},
  });
  const frontend = new FakeFrontend(hub.connect({ name: "frontend" }), "m");
  t.teardown(() => shell.drain());
  const tick = async (ms: number) => {
    for (let left = ms; left > 0; left -= 500) {
      timers.advance(Math.min(500, left));
      await settle();
    }
  };
  const lost = (cause: string) =>
    metrics.value("baton_scheduler_leases_lost_total", { pool: "prefill", cause });
  return {
    ...{ clock, timers, logger, metrics, hub, engines, engineClient, kvEventSource, pool },
    ...{ outcomes, batches, resets, bus, shell, frontend, tick, lost },
  };
}

async function started(t: Test, options: { readonly maxPayloadBytes?: number } = {}) {
  const opened = await open(t, options);
  await opened.shell.start();
  await settle();
  return opened;
}

const record = (requestId: string, reason = "cost"): DecisionRecord => ({
  pool: "prefill",
  requestId,
  attempt: 1,
  policy: "cost",
  wallMs: 1,
  promptTokens: 3,
  candidates: [
    { worker: { workerId: "p0", incarnation: "1" }, rejected: null, terms: [], costMs: 5 },
  ],
  winner: { workerId: "p0", incarnation: "1" },
  tieDraw: 0.25,
  reason,
});

t.test("the fleet is told when it changes, each second, and with a last word", async (t) => {
  const { shell, frontend, engines, pool, tick } = await started(t);
  const last = () => frontend.fleets.at(-1)!;
  t.match(last(), {
    model: "m",
    pool: "prefill",
    schedulerId: "s0",
    isLeaving: false,
    indexBlockSizes: [16],
    maxModelLenTokens: 100_000,
    workers: [
      { workerId: "p0", url: "http://p0:8000", state: "up", incarnation: "100.1" },
      { workerId: "p1", state: "up" },
    ],
  });
  const before = frontend.fleets.length;
  await tick(3_000);
  t.equal(frontend.fleets.length, before + 3);
  engines.get("p1").isUp = false;
  pool.blockSizes = [16, 32];
  await tick(1_000);
  t.match(last(), {
    indexBlockSizes: [16, 32],
    workers: [{ state: "up" }, { state: "down", reason: "p1: ECONNREFUSED" }],
  });
  const drained = shell.drain();
  await settle();
  t.equal(last().isLeaving, true);
  t.same(shell.missing(), ["draining"]);
  await drained;
});

t.test("before the workers were asked nothing is promised", async (t) => {
  const { shell, hub, engines, tick } = await open(t);
  engines.get("p0").isUp = false;
  engines.get("p1").isUp = false;
  t.same(shell.missing(), ["workers are being asked"]);
  await shell.start();
  t.same(shell.missing(), ["no prefill worker is up"]);
  engines.get("p0").isUp = true;
  await tick(500);
  t.same(shell.missing(), []);
  hub.interrupt();
  t.same(shell.missing(), ["bus is reconnecting"]);
  hub.resume();
});

t.test(
  "a frontend that misses its beats loses its leases, one that beats keeps them",
  async (t) => {
    const { frontend, hub, pool, tick, lost, metrics } = await started(t);
    const other = new FakeFrontend(hub.connect({ name: "other" }), "m", "f1");
    pool.leases.set("p0", ["f0@1", "f1@1"]);
    frontend.beat();
    other.beat();
    await settle();
    for (let second = 0; second < 6; second++) {
      other.beat();
      await tick(1_000);
      const isGone = second >= 3;
      t.same(pool.leases.get("p0"), isGone ? ["f1@1"] : ["f0@1", "f1@1"], `second ${second + 1}`);
    }
    t.equal(lost("frontend gone"), 1);
    t.equal(metrics.value("baton_scheduler_live_frontends", { pool: "prefill" }), 1);
    t.equal(metrics.value("baton_scheduler_live_leases", { pool: "prefill" }), 1);
  },
);

t.test(
  "a frontend that says goodbye loses its leases at once, and is not missed later",
  async (t) => {
    const { frontend, pool, tick, lost, metrics } = await started(t);
    pool.leases.set("p0", ["f0@1"]);
    frontend.beat();
    frontend.beat(true);
    await settle();
    t.same(pool.leases.get("p0"), []);
    t.equal(lost("frontend gone"), 1);
    await tick(1_000);
    t.equal(metrics.value("baton_scheduler_live_frontends", { pool: "prefill" }), 0);
    await tick(5_000);
    t.equal(lost("frontend gone"), 1);
  },
);

t.test("an outage of the bus is no silence of the frontends", async (t) => {
  const { frontend, hub, pool, tick, lost } = await started(t);
  pool.leases.set("p0", ["f0@1"]);
  frontend.beat();
  await settle();
  hub.interrupt();
  await tick(10_000);
  hub.resume();
  await tick(1_000);
  t.same(pool.leases.get("p0"), ["f0@1"], "its streams went on all the time");
  await tick(4_000);
  t.same(pool.leases.get("p0"), [], "but whoever is silent after the return is gone");
  t.equal(lost("frontend gone"), 1);
});

t.test("what is overdue is ended each second and counted", async (t) => {
  const { pool, tick, lost } = await started(t);
  pool.overdue = 3;
  await tick(1_000);
  t.equal(lost("deadline"), 3);
});

t.test("a restarted worker loses its leases, which are counted", async (t) => {
  const { engines, pool, tick, lost, metrics } = await started(t);
  pool.leases.set("p0", ["f0@1", "f0@1"]);
  pool.leases.set("p1", ["f0@1"]);
  engines.get("p0").processStartS = 200;
  await tick(500);
  t.equal(lost("worker restarted"), 2);
  const labels = { pool: "prefill", worker: "p0" };
  t.equal(metrics.value("baton_worker_restarts_total", labels), 1);
  t.same(pool.leases.get("p1"), ["f0@1"]);
});

t.test(
  "outcomes reach the pool, and what cannot be read is counted and reaches nobody",
  async (t) => {
    const { frontend, outcomes, metrics, tick } = await started(t);
    frontend.report("r1", { kind: "returned", reason: "x" });
    frontend.publishRaw("prefill", "outcome", Buffer.from("garbage"));
    frontend.publishRaw("prefill", "frontend", Buffer.from("garbage"));
    await settle();
    t.match(outcomes, [{ requestId: "r1", stage: { kind: "returned" } }]);
    const code = "BATON_PROTOCOL_MALFORMED";
    t.equal(metrics.value("baton_bus_messages_refused_total", { code }), 2);
    await tick(1_000);
    t.equal(
      metrics.value("baton_scheduler_live_frontends", { pool: "prefill" }),
      1,
      "any message shows that a frontend lives",
    );
  },
);

t.test("decisions are answered newest first, as many as the bus carries", async (t) => {
  const { shell, frontend } = await started(t, { maxPayloadBytes: 64 * 1_024 });
  for (let at = 0; at < 1_000; at++) shell.decided(record(`r${at}`), null);
  const few = await frontend.decisions("prefill", { requestId: null, limit: 3 });
  t.same(
    few.records.map((each) => each.requestId),
    ["r999", "r998", "r997"],
  );
  t.same(few.records[0], record("r999"));
  const one = await frontend.decisions("prefill", { requestId: "r7", limit: 9 });
  t.same(one.records, [record("r7")]);
  const all = await frontend.decisions("prefill", { requestId: null, limit: 1_000 });
  t.equal(all.records[0]!.requestId, "r999");
  t.ok(all.records.length > 100, "the answer is filled");
  t.ok(decisionsAnswer.encode(all).length <= 60 * 1_024);
  const none = await frontend.askRaw("prefill", "decisions", Buffer.from("garbage"));
  t.same(decisionsAnswer.decode(none), { ok: true, value: { records: [] } });
});

t.test("an answer never holds more records than its reader takes", async (t) => {
  const log = new DecisionLog(50_000);
  for (let at = 0; at < 12_000; at++) log.add({ ...record(`r${at}`), candidates: [] });
  const payload = log.answer({ requestId: null, limit: 50_000 }, 64 * 1_024 * 1_024);
  const read = decisionsAnswer.decode(payload);
  t.match(read, { ok: true });
  t.ok(read.ok && read.value.records.length === 10_000);
});

t.test("a single record that the bus cannot carry is left off", async (t) => {
  const log = new DecisionLog(10);
  log.add(record("r0", "x".repeat(5_000)));
  const read = decisionsAnswer.decode(log.answer({ requestId: null, limit: 5 }, 4_096));
  t.same(read, { ok: true, value: { records: [] } });
});

t.test("decisions and faults are counted, and a fault asks its worker at once", async (t) => {
  const { shell, engineClient, metrics } = await started(t);
  shell.decided(record("r1"), null);
  shell.decided(record("r2"), { code: "BATON_NO_PREFILL_WORKER", message: "none" });
  const decisions = (result: string) =>
    metrics.value("baton_scheduler_decisions_total", { pool: "prefill", result });
  t.same([decisions("chosen"), decisions("BATON_NO_PREFILL_WORKER")], [1, 1]);
  const before = engineClient.fetches.length;
  shell.faulted("p1");
  t.match(engineClient.fetches.slice(before), [{ workerId: "p1", path: "/health" }]);
  const labels = { pool: "prefill", worker: "p1" };
  t.equal(metrics.value("baton_worker_faults_total", labels), 1);
  await settle();
});

t.test("feed states are a metric of one state per worker, and /debug shows them", async (t) => {
  const { shell, engines, kvEventSource, metrics, resets, batches, logger, tick } = await open(t);
  engines.get("p1").kvEventSources = null;
  await shell.start();
  await settle();
  const state = (worker: string, name: string) =>
    metrics.value("baton_kv_feed_state", { worker, state: name });
  const feed = kvEventSource.feedOf("p0")!;
  t.same(feed.options, { workerId: "p0", endpoint: "tcp://p0:5557", replayEndpoint: null });
  t.equal(state("p1", "none"), 1);
  feed.setState("subscribed", "connected");
  feed.setState("live", "replayed");
  t.same([state("p0", "subscribed"), state("p0", "live")], [0, 1]);
  feed.setState("lossy", "a hole of 3");
  t.same([state("p0", "live"), state("p0", "lossy")], [0, 1]);
  t.match(
    logger.lines.filter((line) => line.message === "KV event feed" && line.level === "warn"),
    [{ fields: { workerId: "p0", state: "lossy", reason: "a hole of 3" } }],
  );
  feed.push([{ kind: "cleared" }], { "no hashes": 2 });
  t.match(batches, [["p0", { events: [{ kind: "cleared" }], skipped: { "no hashes": 2 } }]]);
  feed.reset("engine restarted");
  t.same(resets, ["p0 engine restarted"]);
  const { body } = shell.workersAnswer();
  t.match(body, {
    model: "m",
    pool: "prefill",
    workers: [
      { workerId: "p0", state: "up", version: "0.32.0", kvEvents: "lossy", leases: 0 },
      { workerId: "p1", kvEvents: "none" },
    ],
  });
  await tick(500);
});

t.test("gauges follow the pool, and a missing signal is not a zero", async (t) => {
  const { engines, pool, metrics, tick } = await started(t);
  const ofP0 = { pool: "prefill", worker: "p0" };
  const missing = () =>
    metrics.value("baton_worker_signal_missing_state", { ...ofP0, signal: "kvUsageRatio" });
  t.equal(metrics.value("baton_worker_faults_total", ofP0), 0, "series exist from birth");
  pool.leases.set("p0", ["f0@1", "f0@1"]);
  engines.get("p0").hasMetrics = false;
  await tick(1_000);
  t.equal(metrics.value("baton_worker_live_leases", ofP0), 2);
  t.equal(metrics.value("baton_worker_up_state", ofP0), 1);
  t.equal(missing(), 1);
  engines.get("p0").hasMetrics = true;
  engines.get("p0").isUp = false;
  pool.leases.clear();
  await tick(2_000);
  t.equal(metrics.value("baton_worker_up_state", ofP0), 0);
  t.equal(missing(), 0, "of a worker that is down nothing is missing");
  t.equal(metrics.value("baton_worker_live_leases", ofP0), 0);
  t.equal(metrics.value("baton_scheduler_live_leases", { pool: "prefill" }), 0);
});

t.test("a drain is one, ends polling, and leaves no timer", async (t) => {
  const { shell, timers, frontend, bus, kvEventSource } = await started(t);
  await Promise.all([shell.drain(), shell.drain()]);
  await settle();
  t.equal(bus.state(), "closed");
  t.equal(frontend.fleets.filter((each) => each.isLeaving).length, 1);
  t.equal(timers.pending, 0);
  t.ok(kvEventSource.feeds.every((feed) => !feed.isOpen));
});
