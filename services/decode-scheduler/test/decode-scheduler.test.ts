import * as exported from "@baton/decode-scheduler";
import { settle } from "@baton/ports/testing";
import { handleAnswer, reserved } from "@baton/protocol";
import { FakeFrontend } from "@baton/scheduler-shell/testing";
import { loadConfig, renderConfigDoc } from "@baton/service-host";
import { natsUserOf } from "@baton/service-wiring";
import t from "tap";
import { nothingHeld, offer, openRig, profile } from "./rig.ts";

type Rig = Awaited<ReturnType<typeof openRig>>;

/** Reserves for p0 and gives the decode worker; throws on a refusal. */
async function grantedTo(rig: Rig, requestId: string, promptTokens = 8_000) {
  const candidates = [offer("p0"), offer("p1")];
  const answer = await rig.frontend.reserve({ requestId, candidates, promptTokens });
  if (answer.kind !== "remote") throw new Error(JSON.stringify(answer));
  return answer.decode;
}

async function claimOf(
  rig: Rig,
  requestId: string,
  over: { handleId?: string; ageMs?: number } = {},
) {
  const decode = { workerId: "d0", incarnation: "100.1" };
  const { worker: prefill } = offer("p0");
  return rig.frontend.handle({ requestId, prefill, decode, handleId: `h-${requestId}`, ...over });
}

t.test("room and link are held at once, so that the next decision sees them", async (t) => {
  const rig = await openRig(t);
  const answer = await rig.frontend.reserve({
    requestId: "r1",
    candidates: [offer("p1"), offer("p0")],
    promptTokens: 8_000,
    maxOutputTokens: 100,
  });
  t.match(answer, {
    kind: "remote",
    prefill: { workerId: "p1", incarnation: "1" },
    connector: "nixl-pull",
    decode: { incarnation: "100.1", dialect: "vllm", dpRank: null },
  });
  const first = answer.kind === "remote" ? answer.decode.workerId : "";
  const second = (await grantedTo(rig, "r2")).workerId;
  t.same([first, second].sort(), ["d0", "d1"], "the second goes to the other");
  await rig.tick(1_000);
  const held = { leases: 1, kvTokens: 8_100, ingressBytes: 8_000 * profile.kvBytesPerToken };
  t.same(rig.held(), { d0: held, d1: held, openHandles: 0, transfers: 2 });
  t.equal(rig.metrics.value("baton_decode_reservations_total", { kind: "remote" }), 2);
});

t.test("the same attempt asked twice is held once and gets the same answer", async (t) => {
  const rig = await openRig(t);
  const first = await grantedTo(rig, "r1");
  t.same(await grantedTo(rig, "r1"), first);
  await rig.tick(1_000);
  t.match(rig.held(), { transfers: 1 });
});

t.test("without an offer one decode worker does it all, and no transfer is held", async (t) => {
  const rig = await openRig(t);
  t.match(await rig.frontend.reserve({ requestId: "r", promptTokens: 80 }), { kind: "local" });
  await rig.tick(1_000);
  t.match(rig.held(), { transfers: 0 });
  t.equal(rig.metrics.value("baton_decode_reservations_total", { kind: "local" }), 1);
});

t.test("a fuller worker is passed by, and a full pool says so", async (t) => {
  const rig = await openRig(t);
  rig.workers.get("d0").usageRatio = 0.7;
  await rig.tick(500);
  for (const requestId of ["r1", "r2", "r3"]) {
    t.equal((await grantedTo(rig, requestId, 1_000)).workerId, "d1");
  }
  rig.workers.get("d1").usageRatio = 0.95;
  await rig.tick(500);
  const refused = await rig.frontend.reserve({
    requestId: "r4",
    candidates: [offer("p0")],
    promptTokens: 50_000,
  });
  t.match(refused, {
    kind: "refused",
    error: { code: "BATON_SATURATED", retryAfterS: 1, message: /d0 room for 44800 tokens, 50100/ },
  });
});

t.test("other protocols, dead workers and failed ones are named in the refusal", async (t) => {
  const rig = await openRig(t);
  const ask = (requestId: string, connector: string, excluded: string[] = []) =>
    rig.frontend.reserve({ requestId, candidates: [offer("p0", connector)], excluded });
  t.match(await ask("r1", "teleport"), {
    error: { code: "BATON_NO_COMPATIBLE_PAIR", message: /d0 speaks nixl-pull/ },
  });
  rig.workers.get("d0").isUp = false;
  await rig.tick(1_000);
  t.match(await ask("r2", "nixl-pull", ["d1"]), {
    error: {
      code: "BATON_NO_DECODE_WORKER",
      message: /d0 down: d0: ECONNREFUSED; d1 failed this request before/,
    },
  });
});

t.test("a handle is granted once, to who reserved, while its lease lasts", async (t) => {
  const rig = await openRig(t);
  t.match(await claimOf(rig, "r1"), { kind: "refused", reason: /holds no reservation/ });
  await grantedTo(rig, "r1");
  t.same(await claimOf(rig, "r1", { ageMs: 500 }), { kind: "claimed", presentWithinMs: 27_500 });
  t.match(await claimOf(rig, "r1"), { kind: "refused", reason: /was claimed by r1#1 before/ });
  await grantedTo(rig, "r2");
  t.match(await claimOf(rig, "r2", { handleId: "h-r1" }), { kind: "refused" });
  t.match(await claimOf(rig, "r2", { ageMs: 28_000 }), {
    kind: "refused",
    reason: "expires in 2000 ms",
  });
  t.match(await claimOf(rig, "r2", { ageMs: 27_999 }), { kind: "claimed", presentWithinMs: 1 });
  const teleport = { prefill: offer("p0").worker, decode: offer("d0").worker, handleId: "x" };
  t.match(await rig.frontend.handle({ requestId: "r2", ...teleport, connector: "teleport" }), {
    kind: "refused",
    reason: "unknown connector teleport",
  });
  t.same([rig.handles("claimed"), rig.handles("refused")], [2, 5]);
  await rig.tick(1_000);
  t.match(rig.held(), { openHandles: 2 });
});

t.test("a shorter lease of the engines can be configured", async (t) => {
  const rig = await openRig(t, { handleLeaseMs: 5_000 });
  await grantedTo(rig, "r1");
  t.match(await claimOf(rig, "r1"), { presentWithinMs: 3_000 });
});

t.test("the first byte frees the link, the end all else, however often it is said", async (t) => {
  const rig = await openRig(t);
  const { workerId } = await grantedTo(rig, "r1");
  await claimOf(rig, "r1");
  for (let time = 0; time < 2; time++) {
    rig.frontend.report("r1", { kind: "first-byte", legMs: 20 });
    await rig.tick(1_000);
    const held = { leases: 1, kvTokens: 8_100, ingressBytes: 0 };
    t.same(rig.held(), { ...nothingHeld, [workerId]: held });
  }
  t.match(await claimOf(rig, "r1"), { kind: "refused", reason: /was pulled by r1#1 before/ });
  rig.frontend.end("r1");
  rig.frontend.end("r1");
  await rig.tick(1_000);
  t.same(rig.held(), nothingHeld);
});

t.test("whatever stage an attempt ends in, nothing stays held", async (t) => {
  for (const end of ["done", "client-closed", "failed", "retried"] as const) {
    for (const isClaimed of [false, true]) {
      const rig = await openRig(t);
      await grantedTo(rig, "r1");
      if (isClaimed) await claimOf(rig, "r1");
      rig.frontend.report("r1", { kind: "prefill-failed", workerFault: true, reason: "" });
      rig.frontend.end("r1", { end });
      await rig.tick(1_000);
      t.same(rig.held(), nothingHeld, `${end}, ${isClaimed ? "claimed" : "not claimed"}`);
      const known = await claimOf(rig, "r1");
      t.match(known, { kind: "refused" }, "its handle is used up with it");
    }
  }
});

t.test("an attempt is its own: the end of one leaves the next alone", async (t) => {
  const rig = await openRig(t);
  await grantedTo(rig, "r1");
  rig.frontend.end("r1", { end: "retried" }, 1);
  await rig.frontend.reserve({ requestId: "r1", attempt: 2, candidates: [offer("p1")] });
  rig.frontend.end("r1", { end: "retried" }, 1);
  await rig.tick(1_000);
  t.match(rig.held(), { transfers: 1 });
});

t.test("a message that cannot be read gets a typed answer and is counted", async (t) => {
  const rig = await openRig(t);
  const garbage = Buffer.from("garbage");
  t.match(reserved.decode(await rig.frontend.askRaw("decode", "reserve", garbage)), {
    value: { kind: "refused", error: { code: "BATON_PROTOCOL_MALFORMED" } },
  });
  t.match(handleAnswer.decode(await rig.frontend.askRaw("decode", "handle", garbage)), {
    value: { kind: "refused", reason: /message handle: / },
  });
  rig.frontend.publishRaw("decode", "outcome", garbage);
  await settle();
  const code = "BATON_PROTOCOL_MALFORMED";
  t.equal(rig.metrics.value("baton_bus_messages_refused_total", { code }), 3);
});

t.test(
  "leases of a frontend that falls silent are freed, those of one that leaves at once",
  async (t) => {
    const rig = await openRig(t);
    const silent = new FakeFrontend(rig.hub.connect({ name: "silent" }), "m", "f1");
    await silent.reserve({ requestId: "r1", candidates: [offer("p0")] });
    await silent.handle({
      requestId: "r1",
      prefill: offer("p0").worker,
      decode: offer("d0").worker,
      handleId: "h1",
    });
    await rig.tick(3_000);
    t.match(rig.held(), { openHandles: 1, transfers: 1 });
    await rig.tick(1_500);
    t.same(rig.held(), nothingHeld);
    t.equal(rig.lost("frontend gone"), 1);
    await silent.reserve({ requestId: "r2", candidates: [offer("p0")] });
    silent.beat(true);
    await settle();
    await rig.tick(1_000);
    t.same(rig.held(), nothingHeld);
    t.equal(rig.lost("frontend gone"), 2);
  },
);

t.test("a restarted worker loses its leases, its transfers and its handles", async (t) => {
  const rig = await openRig(t);
  rig.workers.get("d1").isUp = false;
  await rig.tick(1_000);
  await grantedTo(rig, "r1");
  await claimOf(rig, "r1");
  await grantedTo(rig, "r2");
  rig.workers.get("d0").processStartS = 200;
  await rig.tick(1_000);
  t.same(rig.held(), nothingHeld);
  t.equal(rig.lost("worker restarted"), 2);
  t.match(await claimOf(rig, "r2"), { kind: "refused", reason: /holds no reservation/ });
  t.equal((await grantedTo(rig, "r3")).incarnation, "200.1");
});

t.test("a lease whose outcome never comes ends at its deadline", async (t) => {
  const rig = await openRig(t);
  await rig.frontend.reserve({ requestId: "r", candidates: [offer("p0")], deadlineMs: 2_500 });
  await rig.tick(2_000);
  t.match(rig.held(), { transfers: 1 });
  await rig.tick(1_000);
  t.same(rig.held(), nothingHeld);
  t.equal(rig.lost("deadline"), 1);
});

t.test("a worker that fails a request is asked at once", async (t) => {
  const rig = await openRig(t);
  const { workerId } = await grantedTo(rig, "r1");
  const before = rig.engineClient.fetches.length;
  rig.frontend.end("r1", { end: "retried", workerFault: true });
  await settle();
  t.match(rig.engineClient.fetches[before], { workerId, path: "/health" });
  const labels = { pool: "decode", worker: workerId };
  t.equal(rig.metrics.value("baton_worker_faults_total", labels), 1);
  rig.frontend.end("r1", { end: "retried", workerFault: true });
  await settle();
  t.equal(rig.metrics.value("baton_worker_faults_total", labels), 1, "said twice, counted once");
});

t.test("a decision can be asked for over the bus, whole", async (t) => {
  const rig = await openRig(t);
  await grantedTo(rig, "r1");
  const query = { requestId: "r1", limit: 5 };
  const { records } = await rig.frontend.decisions("decode", query);
  t.same(rig.scheduler.decisions(query), { status: 200, body: { records } });
  t.match(records, [{ pool: "decode", requestId: "r1", promptTokens: 8_000, policy: "cost" }]);
  t.equal(records[0]!.candidates.length, 2);
  t.match(rig.scheduler.workers().body, { pool: "decode", workers: [{ workerId: "d0" }, {}] });
});

t.test("same seed and same inputs give the same decisions, another seed other draws", async (t) => {
  const play = async (seed: number) => {
    const rig = await openRig(t, { seed });
    for (let at = 0; at < 60; at++) {
      const requestId = `r${at}`;
      await rig.frontend.reserve({
        requestId,
        candidates: [offer(`p${at % 3}`)],
        promptTokens: 100 + (at % 5) * 4_000,
      });
      if (at % 2 === 0) rig.frontend.end(`r${at - (at % 4)}`);
      if (at % 10 === 0) await rig.tick(500);
      rig.timers.advance(17);
    }
    const { records } = await rig.frontend.decisions("decode", { requestId: null, limit: 100 });
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
    await grantedTo(rig, "r1");
    const user = natsUserOf("decode-scheduler", { kind: "password", password: "x" });
    const wide = (subject: string) => subject.replace("baton.v1.m.", "baton.v1.*.");
    t.same([...rig.bus.sentSubjects].map(wide), user.publish);
    t.same([...rig.bus.heardSubjects].map(wide).sort(), [...user.subscribe].sort());
  },
);

t.test("the configuration's defaults load, and every key is described", async (t) => {
  const workers = [{ id: "d0", url: "http://10.0.0.1:8000" }];
  const loaded = loadConfig({
    schema: exported.configSchema,
    file: null,
    env: {},
    overrides: { model: "m", "bus.url": "nats://10.0.0.5:4222", workers },
  });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.error));
  t.match(loaded.value.value, {
    admin: { port: 8_002 },
    decode: { linkBytesPerSecond: 50e9, outputTokensDefault: 512, handleLeaseMs: null },
  });
  t.match(renderConfigDoc("decode-scheduler", exported.configSchema), /linkBytesPerSecond/);
  t.same(Object.keys(exported).sort(), [
    "configSchema",
    "createDecodeScheduler",
    "metricDefinitions",
    "startDecodeScheduler",
  ]);
});
