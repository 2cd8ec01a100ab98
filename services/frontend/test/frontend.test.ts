import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { batonError, type DecisionRecord } from "@baton/domain";
import * as exported from "@baton/frontend";
import { settle } from "@baton/ports/testing";
import { fleet, subjectOf } from "@baton/protocol";
import { createLogger, loadConfig, renderConfigDoc } from "@baton/service-host";
import { natsUserOf } from "@baton/service-wiring";
import t from "tap";
import { readApiKeysFile } from "../src/api-keys-file.ts";
import { chat, jsonHead, openRig, sse, sseHead } from "./rig.ts";

t.test(
  "a model that no scheduler ever named is unknown, one that fell silent is not",
  async (t) => {
    const rig = await openRig(t, { models: [] });
    const early = await rig.send();
    t.match(
      early.sink.lastError,
      { code: "BATON_MODEL_NOT_READY", retryAfterS: 1 },
      "before the first word of a scheduler no model can be called unknown",
    );
    rig.prefill.tellFleet();
    rig.decode.tellFleet();
    await settle();
    const other = await rig.send(chat("", "n"));
    t.match(other.sink.lastError, {
      code: "BATON_UNKNOWN_MODEL",
      param: "model",
      message: 'The model "n" does not exist. Known: m.',
    });
    const silent = await rig.send();
    t.match(silent.sink.lastError, { code: "BATON_MODEL_NOT_READY", retryAfterS: 1 });
    t.equal(rig.total("BATON_UNKNOWN_MODEL"), 1);
    t.equal(rig.total("BATON_MODEL_NOT_READY"), 2);
    t.equal(rig.live(), 0);
  },
);

t.test("a body that cannot be a request is refused without asking anybody", async (t) => {
  const rig = await openRig(t);
  for (const [body, code] of [
    ["{", "BATON_BAD_JSON"],
    ['{"model":"m"}', "BATON_BAD_REQUEST"],
    ['{"messages":[]}', "BATON_BAD_REQUEST"],
  ] as const) {
    t.match((await rig.send(body)).sink.lastError, { code });
  }
  t.equal(rig.total("BATON_BAD_REQUEST"), 2);
  t.equal(rig.prefill.places.length, 0);
  t.equal(rig.live(), 0);
});

t.test("at most so many requests live at once, and a place is free once one is over", async (t) => {
  const rig = await openRig(t, { config: { requestsLiveMax: 2 } });
  const first = await rig.send();
  await rig.send();
  const third = await rig.send();
  t.match(third.sink.lastError, { code: "BATON_SATURATED", retryAfterS: 1 });
  t.equal(rig.live(), 2);
  (await rig.prefilled(first)).answer(200, jsonHead, "{}");
  await settle();
  t.match((await rig.send()).sink, { lastError: null });
  t.equal(rig.live(), 2);
});

t.test(
  "a drain takes nothing new, lets running answers end, and only then says goodbye",
  async (t) => {
    const rig = await openRig(t);
    const running = await rig.send(chat('"stream":true'));
    let isDrained = false;
    const first = rig.frontend.drain(30_000);
    const drained = rig.frontend.drain(30_000).then(() => {
      isDrained = true;
    });
    await rig.tick(1_000);
    t.equal(isDrained, false, "whoever asks again waits too");
    t.match((await rig.send()).sink.lastError, { code: "BATON_DRAINING" });
    t.same(rig.frontend.ready(), { status: 503, body: { ready: false, missing: ["draining"] } });
    t.equal(rig.frontend.health().status, 200);
    t.same(
      rig.decode.beats.map(({ isLeaving, requestsLive }) => [isLeaving, requestsLive]),
      [[false, 1]],
      "a frontend that still has requests is not gone: its leases must stay",
    );
    const decode = await rig.prefilled(running);
    decode.answer(200, sseHead, sse("1", "[DONE]"));
    await settle();
    t.equal(running.sink.text, sse("1", "[DONE]"));
    await Promise.all([first, drained]);
    for (const scheduler of [rig.prefill, rig.decode]) {
      t.match(scheduler.beats.at(-1), { isLeaving: true, requestsLive: 0 });
      t.equal(scheduler.beats.filter((each) => each.isLeaving).length, 1);
      t.same(
        scheduler.stages(running.requestId).at(-1),
        "ended done",
        "the outcome went before it",
      );
    }
    t.equal(rig.bus.state(), "closed");
    const beats = rig.decode.beats.length;
    await rig.tick(5_000);
    t.equal(rig.decode.beats.length, beats);
  },
);

t.test("a drain ends at its deadline with work still running", async (t) => {
  const rig = await openRig(t);
  await rig.send();
  const drained = rig.frontend.drain(3_000);
  await rig.tick(3_000);
  await drained;
  t.match(rig.decode.beats.at(-1), { isLeaving: true, requestsLive: 1 });
});

t.test("each second every scheduler of every model hears that the frontend lives", async (t) => {
  const rig = await openRig(t, { models: ["m", "n"] });
  await rig.send();
  await rig.tick(3_000);
  for (const model of ["m", "n"]) {
    for (const pool of ["prefill", "decode"] as const) {
      t.same(
        rig.scheduler(pool, model).beats.at(-1),
        { frontend: { frontendId: "f0", incarnation: "7" }, isLeaving: false, requestsLive: 1 },
        `${model} ${pool}`,
      );
      t.equal(rig.scheduler(pool, model).beats.length, 3);
    }
  }
});

t.test("readiness names what is missing, and one served model is enough", async (t) => {
  const rig = await openRig(t, { models: [] });
  const missing = () => {
    const { status, body } = rig.frontend.ready();
    const read = body as { ready: boolean; missing: string[] };
    t.equal(status, read.ready ? 200 : 503);
    t.equal(read.ready, read.missing.length === 0);
    return read.missing;
  };
  t.same(missing(), ["no scheduler was heard yet"]);
  rig.prefill.tellFleet();
  await settle();
  t.same(missing(), ["m: no decode-scheduler was heard"]);
  rig.decode.tellFleet({
    workers: [{ ...rig.decode.fleet.workers[0]!, state: "down", reason: "ECONNREFUSED" }],
  });
  await settle();
  t.same(missing(), ["m: no decode worker is up"]);
  rig.decode.tellFleet({ workers: [{ ...rig.decode.fleet.workers[0]!, state: "up" }] });
  await settle();
  t.same(missing(), []);
  rig.decode.tellFleet({ isLeaving: true });
  await settle();
  t.same(missing(), ["m: the decode-scheduler is draining"]);
  rig.decode.tellFleet({ isLeaving: false });
  await settle();
  await rig.tick(5_001);
  t.same(missing(), [
    "m: the prefill-scheduler fell silent",
    "m: the decode-scheduler fell silent",
  ]);
  rig.scheduler("prefill", "n").tellFleet();
  rig.scheduler("decode", "n").tellFleet();
  await settle();
  t.same(missing(), [], "another model is served");
  rig.hub.interrupt();
  t.same(missing(), ["bus is reconnecting"]);
  rig.hub.resume();
});

t.test("models are listed once heard of, with the tightest limit of their pools", async (t) => {
  const rig = await openRig(t, { models: ["m", "n"] });
  rig.decode.tellFleet({ maxModelLenTokens: 2_048 });
  rig.scheduler("prefill", "n").tellFleet({ maxModelLenTokens: null });
  rig.scheduler("decode", "n").tellFleet({ maxModelLenTokens: null });
  await rig.tick(60_000);
  const { status, body } = rig.frontend.models();
  t.equal(status, 200);
  const created = Math.floor((rig.clock.wallMs() - 60_000) / 1_000);
  t.match(body, {
    object: "list",
    data: [
      { id: "m", object: "model", created, max_model_len: 2_048 },
      { id: "n", created },
    ],
  });
});

t.test("what is no fleet message changes nothing and is said", async (t) => {
  const rig = await openRig(t, { models: [] });
  const stranger = rig.hub.connect({ name: "stranger" });
  const bad = fleet.encode({ ...rig.prefill.fleet, pool: "elsewhere" as "prefill" });
  stranger.publish(subjectOf("m", "prefill", "fleet"), bad);
  stranger.publish(subjectOf("m", "prefill", "fleet"), Buffer.from("garbage"));
  await settle();
  t.same(rig.frontend.directory.models(), []);
  t.equal(rig.logger.lines.filter((line) => line.message === "fleet message refused").length, 2);
});

const record = (pool: "prefill" | "decode", requestId: string, wallMs: number): DecisionRecord => ({
  pool,
  requestId,
  attempt: 1,
  policy: "cost",
  wallMs,
  promptTokens: null,
  candidates: [],
  winner: null,
  tieDraw: 0.5,
  reason: "no candidate: the pool is empty",
});

t.test(
  "decisions of all schedulers come as one list, newest first, and silence is said",
  async (t) => {
    const rig = await openRig(t, { models: ["m", "n"] });
    rig.prefill.records = [record("prefill", "r2", 30), record("prefill", "r1", 10)];
    rig.decode.records = [record("decode", "r2", 40), record("decode", "r1", 20)];
    rig.scheduler("decode", "n").records = [record("decode", "r3", 35)];
    const ask = async (query: { requestId: string | null; limit: number }) => {
      const { status, body } = await rig.frontend.decisions(query);
      t.equal(status, 200);
      return body as { records: DecisionRecord[]; unanswered: string[] };
    };
    const all = await ask({ requestId: null, limit: 10 });
    t.same(
      all.records.map((each) => each.wallMs),
      [40, 35, 30, 20, 10],
    );
    t.same(all.unanswered, []);
    t.same(rig.prefill.queries, [{ requestId: null, limit: 10 }]);
    t.same(all.records.at(-1), record("prefill", "r1", 10));
    const few = await ask({ requestId: null, limit: 2 });
    t.same(
      few.records.map((each) => each.wallMs),
      [40, 35],
    );
    rig.scheduler("prefill", "gone").tellFleet();
    await settle();
    const some = await ask({ requestId: "r2", limit: 10 });
    t.equal(some.records.length, 5);
    t.match(some.unanswered, [
      /^baton\.v1\.gone\.prefill\.decisions: /,
      /^baton\.v1\.gone\.decode\.decisions: /,
    ]);
  },
);

t.test(
  "a lost bus leaves a running stream alone, and what could not be told is counted",
  async (t) => {
    const rig = await openRig(t);
    const sent = await rig.send(chat('"stream":true'));
    const decode = await rig.prefilled(sent);
    decode.head(200, sseHead);
    decode.data("data: 1\n\n");
    rig.hub.interrupt();
    decode.data("data: 2\n\ndata: [DONE]\n\n");
    decode.end();
    await settle();
    t.equal(sent.sink.text, sse("1", "2", "[DONE]"));
    t.equal(rig.total("done"), 1);
    const code = "BATON_BUS_CLOSED";
    t.equal(rig.metrics.value("baton_frontend_outcomes_unsent_total", { code }), 2);
    const refused = await rig.send();
    t.match(refused.sink.lastError, { code });
    rig.hub.resume();
    t.match((await rig.send()).exchanges(), { length: 1 });
  },
);

t.test(
  "what it says and hears on the bus is what its NATS user may, and nothing else",
  async (t) => {
    const rig = await openRig(t);
    const sent = await rig.send();
    (await rig.prefilled(sent)).answer(200, jsonHead, "{}");
    await rig.frontend.decisions({ requestId: null, limit: 1 });
    await rig.tick(1_000);
    const user = natsUserOf("frontend", { kind: "password", password: "x" });
    const pools = ["prefill", "decode"] as const;
    const wide = (subject: string) => subject.replace("baton.v1.m.", "baton.v1.*.");
    const allowed = (subjects: readonly string[]) =>
      subjects
        .flatMap((each) =>
          each.startsWith("baton.v1.*.*.")
            ? pools.map((pool) => each.replace(".*.*.", `.*.${pool}.`))
            : [each],
        )
        .sort();
    t.same([...rig.bus.sentSubjects].map(wide).sort(), allowed(user.publish));
    t.same([...rig.bus.heardSubjects].map(wide).sort(), [...user.subscribe].sort());
    t.equal(user.answerSecondsMax, null, "it answers nobody");
  },
);

t.test("the configuration's defaults load, and every key is described", async (t) => {
  const sources = { schema: exported.configSchema, file: null, env: {} };
  const loaded = loadConfig({ ...sources, overrides: { "bus.url": "nats://10.0.0.5:4222" } });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.error));
  t.match(loaded.value.value, {
    http: { host: "127.0.0.1", port: 8_000, apiKeysFile: null },
    request: { attemptsMax: 2 },
    tokenizer: { mode: "engine" },
    engine: { credentials: [] },
  });
  t.same(loaded.value.warnings, []);
  const bare = loadConfig(sources);
  t.match(bare, { ok: false, error: [{ path: "bus.url", message: "is missing" }] });
  t.same(Object.keys(exported).sort(), [
    "configSchema",
    "createEngineTokenizer",
    "createFrontend",
    "metricDefinitions",
    "openFrontend",
    "startFrontend",
  ]);
  t.match(renderConfigDoc("frontend", exported.configSchema), /request.*deadlineMs/s);
  for (const { path, node } of loaded.value.tree.leaves) {
    const unit = { Ms: "ms", Bytes: "bytes" }[/(Ms|Bytes)(?:Max)?$/.exec(path.at(-1)!)?.[1] ?? ""];
    t.equal(node.unit, unit, `the unit of ${path.join(".")}`);
  }
});

t.test("a broken configuration is refused with every problem", async (t) => {
  const loaded = loadConfig({
    schema: exported.configSchema,
    file: null,
    env: {},
    overrides: {
      "bus.url": "http://x",
      "request.attemptsMax": 0,
      "tokenizer.mode": "magic",
      "http.portt": 1,
    },
  });
  if (loaded.ok) throw new Error("was accepted");
  t.same(loaded.error.map((each) => each.path).sort(), [
    "bus.url",
    "http.portt",
    "request.attemptsMax",
    "tokenizer.mode",
  ]);
});

t.test("client keys are read by name, kept as digests, and every bad line is named", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "baton-keys-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const read = (text: string) => {
    const file = join(folder, "keys");
    writeFileSync(file, text, { mode: 0o600 });
    return readApiKeysFile(file);
  };
  const digest = (key: string) => createHash("sha256").update(key).digest("hex");
  const good = read("# team keys\n\nana: key-of-ana-0000001\n  bob :key-of-bob-0000002  \n");
  t.same(good.ok && [...good.value], [
    [digest("key-of-ana-0000001"), "ana"],
    [digest("key-of-bob-0000002"), "bob"],
  ]);
  const bad = read(
    "ana: short\nnobody\nbob: key-of-bob-0000002\nbob: key-of-bob-0000003\neve: key-of-bob-0000002\n",
  );
  t.match(bad, {
    ok: false,
    error: {
      code: "BATON_CONFIG_INVALID",
      message:
        /keys:1: key of ana .*keys:2: is not .*keys:4: name bob stands there twice.*keys:5: eve has the key of bob/,
    },
  });
  t.notMatch(JSON.stringify(bad), /key-of-/, "no key in an error");
  t.match(read("# nothing\n"), { ok: false, error: { message: /holds no key/ } });
});

t.test("a whole tokenizer folder is asked for before anything starts", async (t) => {
  const rig = await openRig(t, { models: [] });
  const loaded = loadConfig({
    schema: exported.configSchema,
    file: null,
    env: {},
    overrides: { "bus.url": "nats://x:4222", "tokenizer.mode": "local", "http.port": 0 },
  });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.error));
  const logger = createLogger({ service: "frontend", level: "error", pretty: false });
  const opened = await exported.openFrontend(
    loaded.value.value,
    { ...rig, logger },
    {
      bus: rig.bus,
      engineClient: rig.engines,
    },
  );
  t.match(opened, {
    ok: false,
    error: { code: "BATON_CONFIG_INVALID", message: /tokenizer\.folder/ },
  });
});

t.test("the engine's tokenizer takes turns among workers that are up", async (t) => {
  const rig = await openRig(t);
  rig.decode.tellFleet({
    workers: rig.decode.fleet.workers.map((each) => ({ ...each, state: "down", reason: "x" })),
  });
  await settle();
  const tokenize = exported.createEngineTokenizer(() => rig.frontend.directory, rig.engines, 700);
  rig.engines.onFetch = () => ({ ok: true, value: { status: 200, text: '{"tokens":[1]}' } });
  for (const workerId of ["p0", "p1", "p0"]) {
    t.same(await tokenize("m", "{}"), { ok: true, value: { status: 200, text: '{"tokens":[1]}' } });
    t.match(rig.engines.fetches.at(-1), { workerId, path: "/tokenize", timeoutMs: 700 });
  }
  rig.engines.onFetch = () => ({ ok: false, error: batonError("BATON_ENGINE_UNREACHABLE", "p1") });
  t.match(await tokenize("m", "{}"), { ok: false, error: { code: "BATON_ENGINE_UNREACHABLE" } });
  t.match(await tokenize("unheard", "{}"), { error: { code: "BATON_TOKENIZER_FAILED" } });
});

t.test("series exist from birth", async (t) => {
  const rig = await openRig(t, { models: [], config: { tokenizerMode: "none" } });
  t.equal(rig.metrics.value("baton_frontend_tokenizer_info", { mode: "none" }), 1);
  t.equal(rig.total("done"), 0);
  t.equal(
    rig.metrics.value("baton_frontend_requests_total", { route: "completions", result: "done" }),
    0,
  );
});
