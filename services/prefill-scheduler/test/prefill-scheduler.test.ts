import { settle } from "@baton/ports/testing";
import * as exported from "@baton/prefill-scheduler";
import { place, placed } from "@baton/protocol";
import { FakeFrontend } from "@baton/scheduler-shell/testing";
import { loadConfig, renderConfigDoc } from "@baton/service-host";
import { natsUserOf } from "@baton/service-wiring";
import t from "tap";
import { openRig, promptOf, removed, stored, tokens } from "./rig.ts";

type Rig = Awaited<ReturnType<typeof openRig>>;

/** The workers offered, best first; throws on a refusal. */
async function offersOf(rig: Rig, requestId: string, prompt = promptOf(tokens(8_000, 1))) {
  const answer = await rig.frontend.place({ requestId, ...prompt });
  if (answer.kind !== "bound") throw new Error(answer.error.message);
  return answer.candidates;
}

async function chosen(rig: Rig, requestId: string, prompt = promptOf(tokens(8_000, 1))) {
  return (await offersOf(rig, requestId, prompt))[0]!.worker.workerId;
}

t.test("a prompt is bound to the cheapest worker, and the next one sees its load", async (t) => {
  const rig = await openRig(t);
  const offers = await offersOf(rig, "r1");
  t.same(offers.map((each) => each.worker.workerId).sort(), ["p0", "p1"]);
  t.match(offers[0], {
    worker: { incarnation: "100.1", dialect: "vllm", dpRank: null },
    isAggregated: false,
    connector: "nixl-pull",
    blockSizeTokens: 16,
    cachedTokens: { gpu: 0, host: 0, disk: 0 },
    predictedWaitMs: 0,
  });
  const [first, second] = offers;
  t.ok(first!.costMs <= second!.costMs, "best first");
  t.equal(first!.worker.url, `http://${first!.worker.workerId}:8000`);
  t.equal(
    await chosen(rig, "r2", promptOf(tokens(8_000, 2))),
    second!.worker.workerId,
    "the other is free",
  );
  t.equal(rig.metrics.value("baton_prefill_placed_tokens_total"), 16_000);
  const labels = { pool: "prefill", result: "chosen" };
  t.equal(rig.metrics.value("baton_scheduler_decisions_total", labels), 2);
});

t.test("the same attempt asked twice is charged once and gets the same answer", async (t) => {
  const rig = await openRig(t);
  const first = await offersOf(rig, "r1");
  t.same(await offersOf(rig, "r1"), first);
  await rig.tick(1_000);
  t.equal(rig.leases("p0")! + rig.leases("p1")!, 1);
});

t.test("KV events change the next choice, and their removal changes it back", async (t) => {
  const rig = await openRig(t);
  const prompt = tokens(8_000, 1);
  for (const worker of ["p1", "p0"]) {
    const feed = rig.kv.feedOf(worker)!;
    feed.push([stored(prompt)]);
    const offers = await offersOf(rig, `with ${worker}`, promptOf(prompt));
    t.equal(offers[0]!.worker.workerId, worker);
    // The last block is always computed.
    t.same(offers[0]!.cachedTokens, { gpu: 7_984, host: 0, disk: 0 });
    rig.frontend.end(`with ${worker}`);
    feed.push([removed(prompt)]);
    await settle();
    const [without] = await offersOf(rig, `without ${worker}`, promptOf(prompt));
    t.same(without!.cachedTokens, { gpu: 0, host: 0, disk: 0 });
    rig.frontend.end(`without ${worker}`);
    await settle();
  }
  t.equal(rig.metrics.value("baton_prefill_predicted_cached_tokens_total"), 2 * 7_984);
  const events = (worker: string, result: string) =>
    rig.metrics.value("baton_kv_events_total", { worker, result });
  t.same([events("p1", "stored"), events("p1", "removed")], [1, 1]);
});

t.test("a tier further away counts its tokens as they are and costs more", async (t) => {
  const rig = await openRig(t);
  const prompt = tokens(8_000, 1);
  rig.kv.feedOf("p0")!.push([stored(prompt, "CPU")]);
  rig.kv.feedOf("p1")!.push([stored(prompt, "GPU")]);
  const offers = await offersOf(rig, "r1", promptOf(prompt));
  t.same(
    offers.map(({ worker, cachedTokens }) => [worker.workerId, cachedTokens]),
    [
      ["p1", { gpu: 7_984, host: 0, disk: 0 }],
      ["p0", { gpu: 0, host: 7_984, disk: 0 }],
    ],
  );
});

t.test("events that cannot be used are counted by their reason", async (t) => {
  const rig = await openRig(t);
  const feed = rig.kv.feedOf("p0")!;
  feed.push([stored(tokens(32, 1), "TAPE"), { kind: "cleared" }], { "no hashes": 3 });
  const events = (result: string) =>
    rig.metrics.value("baton_kv_events_total", { worker: "p0", result });
  t.same(
    [events("unknown medium TAPE"), events("cleared"), events("unreadable: no hashes")],
    [1, 1, 3],
  );
});

t.test("siblings of a burst follow the first, before any event says a thing", async (t) => {
  const rig = await openRig(t);
  const prompt = promptOf(tokens(8_000, 1));
  const leader = await chosen(rig, "r1", prompt);
  for (let sibling = 2; sibling < 6; sibling++) {
    t.equal(await chosen(rig, `r${sibling}`, prompt), leader);
  }
});

t.test("each way in which an attempt ends gives its worker back once", async (t) => {
  const identity = { workerId: "p1", incarnation: "100.1" };
  const prefilled = {
    kind: "prefilled",
    legMs: 400,
    cachedTokens: 16,
    promptTokens: 8_000,
  } as const;
  const ways: [string, (rig: Rig) => void][] = [
    ["prefilled", (rig) => rig.frontend.report("r", prefilled)],
    ["returned", (rig) => rig.frontend.report("r", { kind: "returned", reason: "local" })],
    [
      "prefill failed",
      (rig) => rig.frontend.report("r", { kind: "prefill-failed", workerFault: false, reason: "" }),
    ],
    [
      "first byte of an aggregated worker",
      (rig) => rig.frontend.report("r", { kind: "first-byte", legMs: 1 }),
    ],
    ["ended", (rig) => rig.frontend.end("r", { end: "client-closed" })],
    [
      "moved, then prefilled",
      (rig) => {
        rig.frontend.report("r", { kind: "moved", prefill: identity });
        rig.frontend.report("r", prefilled);
      },
    ],
  ];
  for (const [way, end] of ways) {
    const rig = await openRig(t);
    await chosen(rig, "r");
    await rig.tick(1_000);
    t.equal(rig.leases("p0")! + rig.leases("p1")!, 1, way);
    end(rig);
    await settle();
    await rig.tick(1_000);
    t.same([rig.leases("p0"), rig.leases("p1")], [0, 0], way);
    end(rig);
    rig.frontend.end("r");
    await rig.tick(1_000);
    t.same([rig.leases("p0"), rig.leases("p1")], [0, 0], `${way}, said twice`);
    t.same([rig.lost("deadline"), rig.lost("frontend gone")], [0, 0], way);
  }
});

t.test("another of its offers takes the charge along", async (t) => {
  const rig = await openRig(t);
  const [first, second] = await offersOf(rig, "r");
  rig.frontend.report("r", { kind: "moved", prefill: second!.worker });
  await rig.tick(1_000);
  t.equal(rig.leases(first!.worker.workerId), 0);
  t.equal(rig.leases(second!.worker.workerId), 1);
});

t.test("what engines report is set against what was predicted", async (t) => {
  const rig = await openRig(t);
  await chosen(rig, "r1");
  const stage = { kind: "prefilled", legMs: 400, cachedTokens: 64, promptTokens: 8_000 } as const;
  rig.frontend.report("r1", stage);
  rig.frontend.report("r2", { ...stage, cachedTokens: null });
  await settle();
  t.equal(rig.metrics.value("baton_prefill_realised_cached_tokens_total"), 64);
  t.equal(rig.metrics.value("baton_prefill_leg_seconds"), 0.8);
});

t.test("a message that cannot be read gets a typed answer and is counted", async (t) => {
  const rig = await openRig(t);
  const good = place.encode({
    requestId: "r",
    attempt: 1,
    frontend: rig.frontend.identity,
    ...promptOf(tokens(32, 1)),
    maxOutputTokens: null,
    deadlineMs: 1_000,
    excluded: [],
  });
  // The version's major is the byte after the envelope's first key and the list's head.
  const at = Buffer.from(good).indexOf(Buffer.of(0x92, 1, 0)) + 1;
  const newer = Uint8Array.from(good);
  newer[at] = 9;
  for (const [payload, code] of [
    [Buffer.from("garbage"), "BATON_PROTOCOL_MALFORMED"],
    [good.subarray(0, good.length - 3), "BATON_PROTOCOL_MALFORMED"],
    [newer, "BATON_PROTOCOL_MAJOR"],
  ] as const) {
    const answer = placed.decode(await rig.frontend.askRaw("prefill", "place", payload));
    t.match(answer, { ok: true, value: { kind: "rejected", error: { code } } });
  }
  const refused = (code: string) => rig.metrics.value("baton_bus_messages_refused_total", { code });
  t.same([refused("BATON_PROTOCOL_MALFORMED"), refused("BATON_PROTOCOL_MAJOR")], [2, 1]);
});

t.test("hashes that are no whole number of hashes are used up to the last whole one", async (t) => {
  const rig = await openRig(t);
  const prompt = promptOf(tokens(8_000, 1));
  rig.kv.feedOf("p1")!.push([stored(tokens(8_000, 1))]);
  const { hashes } = prompt.hashSets[0]!;
  const odd = {
    ...prompt,
    hashSets: [{ blockSizeTokens: 16, hashes: hashes.slice(0, 8 * 10 + 5) }],
  };
  t.same((await offersOf(rig, "r", odd))[0]!.cachedTokens.gpu, 160);
});

t.test("nobody to choose and too long a queue are told apart, with the reasons", async (t) => {
  const rig = await openRig(t, { waitMsMax: 1_000 });
  rig.workers.get("p1").isUp = false;
  rig.workers.get("p0").maxModelLenTokens = 50_000;
  await rig.tick(1_000);
  const tooLong = await rig.frontend.place({ requestId: "r1", ...promptOf(tokens(60_000, 1)) });
  t.match(tooLong, {
    kind: "rejected",
    error: {
      code: "BATON_NO_PREFILL_WORKER",
      message: /p0 takes at most 50000 tokens; p1 down: p1: ECONNREFUSED/,
    },
  });
  t.equal(await chosen(rig, "r2", promptOf(tokens(40_000, 2))), "p0");
  const saturated = await rig.frontend.place({ requestId: "r3", ...promptOf(tokens(8_000, 3)) });
  t.match(saturated, { kind: "rejected", error: { code: "BATON_SATURATED" } });
  t.ok(saturated.kind === "rejected" && saturated.error.retryAfterS! >= 1);
  t.match(
    await rig.frontend.place({ requestId: "r4", ...promptOf(tokens(32, 4)), excluded: ["p0"] }),
    { error: { message: /p0 failed this request before/ } },
  );
  const result = (code: string) =>
    rig.metrics.value("baton_scheduler_decisions_total", { pool: "prefill", result: code });
  t.same([result("BATON_NO_PREFILL_WORKER"), result("BATON_SATURATED")], [2, 1]);
});

t.test(
  "leases of a frontend that falls silent are freed, those of one that leaves at once",
  async (t) => {
    const rig = await openRig(t);
    const silent = new FakeFrontend(rig.hub.connect({ name: "silent" }), "m", "f1");
    await silent.place({ requestId: "r1", ...promptOf(tokens(800, 1)) });
    await chosen(rig, "r2");
    await rig.tick(3_000);
    t.equal(rig.leases("p0")! + rig.leases("p1")!, 2);
    await rig.tick(1_000);
    t.equal(rig.leases("p0")! + rig.leases("p1")!, 1, "the other frontend beats");
    t.equal(rig.lost("frontend gone"), 1);
    await silent.place({ requestId: "r3", ...promptOf(tokens(800, 1)) });
    silent.beat(true);
    await settle();
    t.equal(rig.lost("frontend gone"), 2);
    await rig.tick(1_000);
    t.equal(rig.leases("p0")! + rig.leases("p1")!, 1);
  },
);

t.test("a lease whose outcome never comes ends at its deadline", async (t) => {
  const rig = await openRig(t);
  await rig.frontend.place({ requestId: "r", ...promptOf(tokens(800, 1)), deadlineMs: 2_500 });
  await rig.tick(2_000);
  t.equal(rig.leases("p0")! + rig.leases("p1")!, 1);
  await rig.tick(1_000);
  t.equal(rig.leases("p0")! + rig.leases("p1")!, 0);
  t.equal(rig.lost("deadline"), 1);
});

t.test("a restarted worker is empty: its leases and its blocks are gone", async (t) => {
  const rig = await openRig(t);
  const prompt = tokens(8_000, 1);
  rig.kv.feedOf("p1")!.push([stored(prompt)]);
  t.equal(await chosen(rig, "r1", promptOf(prompt)), "p1");
  const old = rig.kv.feedOf("p1")!;
  rig.workers.get("p1").processStartS = 200;
  await rig.tick(1_000);
  t.equal(rig.lost("worker restarted"), 1);
  t.equal(rig.leases("p1"), 0);
  t.equal(old.isOpen, false);
  t.ok(rig.kv.feedOf("p1") !== undefined && rig.kv.feedOf("p1") !== old, "a feed for the new life");
  const offers = await offersOf(rig, "r2", promptOf(prompt));
  const offer = offers.find((each) => each.worker.workerId === "p1")!;
  t.same(offer.cachedTokens, { gpu: 0, host: 0, disk: 0 });
  t.equal(offer.worker.incarnation, "200.1");
  rig.frontend.end("r1");
  rig.frontend.end("r2");
  rig.kv.feedOf("p1")!.push([stored(prompt)]);
  await settle();
  t.equal(await chosen(rig, "r3", promptOf(prompt)), "p1", "its replay fills it again");
});

t.test("a feed that starts over voids what was known, and its worker is asked", async (t) => {
  const rig = await openRig(t);
  const prompt = tokens(8_000, 1);
  rig.kv.feedOf("p1")!.push([stored(prompt)]);
  const before = rig.engineClient.fetches.length;
  rig.kv.feedOf("p1")!.reset("sequence went back");
  t.match(rig.engineClient.fetches.slice(before), [{ workerId: "p1", path: "/health" }]);
  await settle();
  t.same((await offersOf(rig, "r", promptOf(prompt)))[0]!.cachedTokens.gpu, 0);
});

t.test("a worker that fails requests is asked at once, and after three set aside", async (t) => {
  const rig = await openRig(t);
  rig.workers.get("p1").isUp = false;
  await rig.tick(1_000);
  const fail = async (requestId: string) => {
    await chosen(rig, requestId, promptOf(tokens(32, 1)));
    const before = rig.engineClient.fetches.length;
    rig.frontend.report(requestId, { kind: "prefill-failed", workerFault: true, reason: "500" });
    await settle();
    t.match(rig.engineClient.fetches[before], { workerId: "p0", path: "/health" });
  };
  for (const requestId of ["r1", "r2", "r3"]) await fail(requestId);
  const labels = { pool: "prefill", worker: "p0" };
  t.equal(rig.metrics.value("baton_worker_faults_total", labels), 3);
  t.match(await rig.frontend.place({ requestId: "r4", ...promptOf(tokens(32, 1)) }), {
    error: { message: /p0 quarantined after repeated faults/ },
  });
  await rig.tick(2_500);
  t.equal(await chosen(rig, "r5", promptOf(tokens(32, 1))), "p0");
});

t.test("a decision can be asked for over the bus, whole", async (t) => {
  const rig = await openRig(t);
  const prompt = tokens(8_000, 1);
  rig.kv.feedOf("p1")!.push([stored(prompt)]);
  await chosen(rig, "r1", promptOf(prompt));
  const query = { requestId: "r1", limit: 5 };
  const { records } = await rig.frontend.decisions("prefill", query);
  t.same(rig.scheduler.decisions(query), { status: 200, body: { records } });
  t.match(records, [
    {
      pool: "prefill",
      requestId: "r1",
      attempt: 1,
      policy: "cost",
      wallMs: rig.clock.wallMs(),
      promptTokens: 8_000,
      winner: { workerId: "p1", incarnation: "100.1" },
      reason: "cost",
    },
  ]);
  for (const { terms, costMs } of records[0]!.candidates) {
    const sumMs = terms
      .filter((each) => each.unit === "ms")
      .reduce((sum, each) => sum + each.value, 0);
    t.ok(Math.abs(sumMs - costMs!) < 1e-6, "the terms in ms are the cost");
  }
});

t.test("same seed and same inputs give the same decisions, another seed other draws", async (t) => {
  const play = async (seed: number) => {
    const rig = await openRig(t, { seed });
    for (let at = 0; at < 60; at++) {
      const prompt = tokens(400 + (at % 7) * 700, at % 5);
      if (at % 4 === 0) rig.kv.feedOf(at % 8 === 0 ? "p0" : "p1")!.push([stored(prompt)]);
      await rig.frontend.place({ requestId: `r${at}`, ...promptOf(prompt) });
      if (at % 3 === 0) {
        rig.frontend.report(`r${at}`, {
          kind: "prefilled",
          legMs: 90 + at,
          cachedTokens: 0,
          promptTokens: null,
        });
      }
      if (at % 10 === 0) await rig.tick(500);
      rig.timers.advance(17);
    }
    const { records } = await rig.frontend.decisions("prefill", { requestId: null, limit: 100 });
    return records;
  };
  const [first, second, other] = [await play(7), await play(7), await play(8)];
  t.equal(first.length, 60);
  t.same(second, first);
  t.not(
    JSON.stringify(other.map((each) => each.tieDraw)),
    JSON.stringify(first.map((each) => each.tieDraw)),
  );
});

t.test(
  "what it says and hears on the bus is what its NATS user may, and nothing else",
  async (t) => {
    const rig = await openRig(t);
    await chosen(rig, "r");
    const user = natsUserOf("prefill-scheduler", { kind: "password", password: "x" });
    const wide = (subject: string) => subject.replace("baton.v1.m.", "baton.v1.*.");
    t.same([...rig.bus.sentSubjects].map(wide), user.publish);
    t.same([...rig.bus.heardSubjects].map(wide).sort(), [...user.subscribe].sort());
  },
);

t.test("the configuration's defaults load, and every key is described", async (t) => {
  const workers = [{ id: "p0", url: "http://10.0.0.1:8000" }];
  const loaded = loadConfig({
    schema: exported.configSchema,
    file: null,
    env: {},
    overrides: { model: "m", "bus.url": "nats://10.0.0.5:4222", workers },
  });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.error));
  t.match(loaded.value.value, {
    admin: { port: 8_001 },
    prefill: { waitMsMax: 120_000, tierWeightGpu: 1, tierWeightHost: 0.75, tierWeightDisk: 0.25 },
  });
  t.match(renderConfigDoc("prefill-scheduler", exported.configSchema), /waitMsMax/);
  const bare = loadConfig({ schema: exported.configSchema, file: null, env: {} });
  t.same(bare.ok || bare.error.map((each) => each.path).sort(), ["bus.url", "model", "workers"]);
  t.same(Object.keys(exported).sort(), [
    "configSchema",
    "createPrefillScheduler",
    "metricDefinitions",
    "startPrefillScheduler",
  ]);
});
