import { batonError } from "@baton/domain";
import { Fleet, type Probe } from "@baton/fleet";
import { fail, ok } from "@baton/kit";
import { ManualClock } from "@baton/kit/testing";
import type { EngineClient, KvFeedOptions, KvFeedSink } from "@baton/ports";
import { ManualTimers, MemoryLogger } from "@baton/ports/testing";
import { readKvEventSources, watchWorkers } from "@baton/worker-watch";
import t from "tap";

const sources = (endpoint: string) =>
  JSON.stringify({
    "0": {
      enable_kv_cache_events: true,
      publisher: "zmq",
      endpoint,
      replay_endpoint: "tcp://*:5558",
    },
  });

/** An engine whose answers a test sets. */
class FakeEngine {
  startS = 1;
  isUp = true;
  readonly answers: Record<string, string> = {
    "/health": "",
    "/v1/models": JSON.stringify({ data: [{ id: "m", max_model_len: 4_096 }] }),
    "/version": '{"version":"0.32.0"}',
    "/kv_event_sources": sources("tcp://*:5557"),
  };
  readonly client: EngineClient = {
    dispatch: () => {
      throw new Error("not used");
    },
    fetchText: async ({ path }) => {
      if (!this.isUp) return fail(batonError("BATON_ENGINE_UNREACHABLE", "p0: ECONNREFUSED"));
      if (path === "/metrics") {
        return ok({ status: 200, text: `process_start_time_seconds ${this.startS}\n` });
      }
      const text = this.answers[path];
      return ok(text === undefined ? { status: 404, text: "" } : { status: 200, text });
    },
    close: async () => {},
  };
}

function watch(engine: FakeEngine) {
  const clock = new ManualClock();
  const timers = new ManualTimers(clock);
  const fleet = new Fleet({
    model: "m",
    workers: [
      {
        workerId: "p0",
        url: "http://10.0.0.7:8000",
        role: "prefill",
        dialect: "vllm",
        connector: "nixl-pull",
      },
    ],
  });
  const probes: Probe[] = [];
  const opened: { options: KvFeedOptions; sink: KvFeedSink; isOpen: boolean }[] = [];
  const states: string[] = [];
  const watching = watchWorkers({
    workers: [
      { workerId: "p0", url: "http://10.0.0.7:8000", dialect: "vllm", kvEvents: { kind: "auto" } },
    ],
    pollIntervalMs: 1_000,
    pollTimeoutMs: 500,
    clock,
    timers,
    logger: new MemoryLogger(),
    engineClient: engine.client,
    kvEventSource: {
      open(options, sink) {
        if (!options.endpoint.includes("://")) throw new Error("not an address");
        const feed = { options, sink, isOpen: true };
        opened.push(feed);
        return {
          state: () => "live",
          close: () => {
            feed.isOpen = false;
          },
        };
      },
      close: async () => {},
    },
    onProbe(workerId, probe) {
      probes.push(probe);
      return fleet.applyProbe(workerId, probe);
    },
    onBatch: () => {},
    onReset: () => {},
    onFeedState: (_, state, reason) => states.push(`${state} ${reason}`),
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const tick = async () => {
    timers.advance(1_000);
    await settle();
  };
  return { watching, fleet, probes, opened, states, tick, settle, timers };
}

t.test("the first answer brings a worker up and opens its feed at its own host", async (t) => {
  const { watching, fleet, opened, settle } = watch(new FakeEngine());
  await watching.firstRound;
  await settle();
  t.match(fleet.get("p0"), { state: "up", version: "0.32.0", maxModelLenTokens: 4_096 });
  t.same(
    opened.map((each) => each.options),
    [{ workerId: "p0", endpoint: "tcp://10.0.0.7:5557", replayEndpoint: "tcp://10.0.0.7:5558" }],
  );
  watching.close();
  t.equal(opened[0]!.isOpen, false);
});

t.test("a restarted engine gets a new feed, a network cut does not", async (t) => {
  const engine = new FakeEngine();
  const { watching, fleet, opened, tick } = watch(engine);
  await watching.firstRound;
  engine.isUp = false;
  await tick();
  await tick();
  t.match(fleet.get("p0"), { state: "down", reason: "p0: ECONNREFUSED" });
  engine.isUp = true;
  await tick();
  t.equal(opened.length, 1);
  engine.startS = 2;
  await tick();
  t.same(
    opened.map((each) => each.isOpen),
    [false, true],
  );
  watching.close();
});

t.test("an engine that announces no events is said to have none, with what to do", async (t) => {
  const engine = new FakeEngine();
  delete engine.answers["/kv_event_sources"];
  const { watching, states, settle } = watch(engine);
  await watching.firstRound;
  await settle();
  t.match(states, [/none .*--kv-events-config/]);
  watching.close();
});

t.test("an engine that announces an address that is none is watched without events", async (t) => {
  const engine = new FakeEngine();
  engine.answers["/kv_event_sources"] = sources("nonsense");
  const { watching, fleet, opened, states, tick, settle } = watch(engine);
  await watching.firstRound;
  await settle();
  t.match(fleet.get("p0"), { state: "up" });
  t.match(states, [/none nonsense cannot be listened to: not an address/]);
  await tick();
  t.equal(opened.length, 0);
  watching.close();
});

t.test("after close no timer is left", async (t) => {
  const { watching, timers } = watch(new FakeEngine());
  await watching.firstRound;
  watching.close();
  t.equal(timers.pending, 0);
});

t.test("the announced endpoints are read for what they are", async (t) => {
  const url = "http://h:1";
  t.match(readKvEventSources(sources("tcp://0.0.0.0:7"), url), { endpoint: "tcp://h:7" });
  t.match(readKvEventSources(sources("tcp://10.1.1.1:7"), url), { endpoint: "tcp://10.1.1.1:7" });
  t.equal(
    readKvEventSources('{"0":{"enable_kv_cache_events":false,"endpoint":"tcp://*:1"}}', url),
    null,
  );
  for (const text of ["", "{", "[]", "null", '{"0":null}', '{"0":{}}']) {
    t.equal(readKvEventSources(text, url), null);
  }
});
