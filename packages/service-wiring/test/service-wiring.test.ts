import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { renderNatsAuthorization } from "@baton/bus";
import { defineMetrics } from "@baton/ports";
import { MemoryLogger } from "@baton/ports/testing";
import { subjectOf } from "@baton/protocol";
import { configJsonSchema, createMetrics, loadConfig, renderConfigDoc } from "@baton/service-host";
import {
  type BusService,
  type BusSettings,
  busSection,
  natsUserOf,
  openBus,
  openEngineClient,
  poolSections,
  poolSettingsOf,
  processIdentity,
  readTextFile,
  serveSchedulerAdmin,
} from "@baton/service-wiring";
import t, { type Test } from "tap";
import { z } from "zod";

const poolSchema = z.strictObject(poolSections({ adminPort: 0 }));
const worker = { id: "p0", url: "http://10.0.0.1:8000" };

function load(workers: readonly unknown[], more: Record<string, unknown> = {}) {
  const overrides = { model: "m", "bus.url": "nats://10.0.0.5:4222", workers, ...more };
  return loadConfig({ schema: poolSchema, file: null, env: {}, overrides });
}

function loaded(workers: readonly unknown[], more: Record<string, unknown> = {}) {
  const config = load(workers, more);
  if (!config.ok) throw new Error(JSON.stringify(config.error));
  return config.value.value;
}

/** `path message` of each problem. */
function problems(config: ReturnType<typeof load>): string[] {
  return config.ok ? [] : config.error.map(({ path, message }) => `${path} ${message}`);
}

function folder(t: Test): (name: string, text: string) => string {
  const path = mkdtempSync(join(tmpdir(), "baton-wiring-"));
  t.teardown(() => rmSync(path, { recursive: true }));
  return (name, text) => {
    writeFileSync(join(path, name), text, { mode: 0o600 });
    return join(path, name);
  };
}

t.test("a pool of one worker needs its name and address, all else has a default", async (t) => {
  const config = loaded([worker]);
  t.same(poolSettingsOf(config, "prefill", "s0"), {
    model: "m",
    schedulerId: "s0",
    workers: [
      {
        workerId: "p0",
        url: "http://10.0.0.1:8000",
        role: "prefill",
        dialect: "vllm",
        connector: "nixl-pull",
        kvEvents: { kind: "auto" },
      },
    ],
    pollIntervalMs: 1_000,
    pollTimeoutMs: 2_000,
    decisionsKept: 20_000,
  });
  t.match(config.placement, { policy: "cost", profile: "qwen3-32b-bf16-tp2" });
});

t.test(
  "a worker that does both has no connector, and addresses lose their last slash",
  async (t) => {
    const both = { ...worker, url: "https://h:1/v//", role: "both", dialect: "sglang" };
    t.match(poolSettingsOf(loaded([both]), "decode", "s").workers, [
      { url: "https://h:1/v", role: "both", connector: "none", dialect: "sglang" },
    ]);
    t.match(poolSettingsOf(loaded([worker]), "decode", "s").workers, [{ role: "decode" }]);
  },
);

t.test("KV events are asked for, off, or at a given address", async (t) => {
  const kinds: [unknown, unknown][] = [
    ["auto", { kind: "auto" }],
    ["off", { kind: "off" }],
    [
      { endpoint: "tcp://10.0.0.1:5557" },
      { kind: "endpoint", endpoint: "tcp://10.0.0.1:5557", replayEndpoint: null },
    ],
    [
      { endpoint: "tcp://*:5557", replayEndpoint: "ipc:///run/engine/replay" },
      { kind: "endpoint", endpoint: "tcp://*:5557", replayEndpoint: "ipc:///run/engine/replay" },
    ],
    [
      { endpoint: "tcp://[fd00::1]:5557", replayEndpoint: null },
      { kind: "endpoint", endpoint: "tcp://[fd00::1]:5557", replayEndpoint: null },
    ],
  ];
  for (const [given, kvEvents] of kinds) {
    const [settings] = poolSettingsOf(
      loaded([{ ...worker, kvEvents: given }]),
      "prefill",
      "s",
    ).workers;
    t.same(settings!.kvEvents, kvEvents);
  }
  for (const bad of [
    "on",
    { endpoint: "10.0.0.1:5557" },
    { endpoint: "http://10.0.0.1:5557" },
    { endpoint: "tcp://10.0.0.1" },
    { endpoint: "tcp://10.0.0.1:5557", replay: "x" },
    {},
  ]) {
    t.match(
      problems(load([{ ...worker, kvEvents: bad }])),
      [/^workers\[0\]\.kvEvents/],
      JSON.stringify(bad),
    );
  }
});

t.test(
  "workers that cannot be told apart or reached are refused, each with its place",
  async (t) => {
    t.match(problems(load([])), [/^workers /]);
    t.match(problems(load([worker, { id: "p1", url: "http://h:1" }, worker])), [
      /^workers\[2\]\.id "p0" is the id of workers\[0\] too/,
    ]);
    for (const id of ["", "a b", "a@b", "ä", "x".repeat(129)]) {
      t.match(problems(load([{ ...worker, id }])), [/^workers\[0\]\.id/], id);
    }
    for (const url of ["10.0.0.1:8000", "ftp://h", "http://"]) {
      t.match(problems(load([{ ...worker, url }])), [/^workers\[0\]\.url/], url);
    }
    t.match(problems(load([{ ...worker, connector: "teleport" }])), [/^workers\[0\]\.connector/]);
    t.match(problems(load([{ ...worker, gpu: 1 }])), [/^workers\[0\]\.gpu unknown key/]);
    const credentials = [{ workerId: "p0" }, { workerId: "p0" }];
    t.match(problems(load([worker], { "engine.credentials": credentials })), [
      /^engine\.credentials\[1\]\.workerId "p0" is the workerId of credentials\[0\] too/,
    ]);
  },
);

t.test("every key is described, inside lists and unions too", async (t) => {
  t.match(renderConfigDoc("pool", poolSchema), /workers\[\]\.url/);
  const undescribed: string[] = [];
  const walk = (node: Record<string, unknown>, path: string): void => {
    const properties = (node["properties"] ?? {}) as Record<string, Record<string, unknown>>;
    for (const [key, child] of Object.entries(properties)) {
      const isSection = child["type"] === "object" && child["properties"] !== undefined;
      if (!isSection && JSON.stringify(child).includes('"description"') === false) {
        undescribed.push(`${path}${key}`);
      }
      walk(child, `${path}${key}.`);
    }
    for (const form of [node["items"], ...((node["anyOf"] ?? []) as unknown[])]) {
      if (typeof form === "object" && form !== null) walk(form as Record<string, unknown>, path);
    }
  };
  walk(configJsonSchema(poolSchema), "");
  t.same(undescribed, []);
});

const noAuth: BusSettings = {
  url: "nats://127.0.0.1:1",
  user: null,
  passwordFile: null,
  tokenFile: null,
  nkeySeedFile: null,
  credsFile: null,
  caFile: null,
  certFile: null,
  keyFile: null,
  connectDeadlineMs: 200,
};

t.test("a bus takes one way to say who it is, and says which file is missing", async (t) => {
  const write = folder(t);
  const ports = { logger: new MemoryLogger(), signal: new AbortController().signal };
  const open = (more: Partial<BusSettings>) => openBus({ ...noAuth, ...more }, "frontend", ports);
  const passwordFile = write("password", "secret-of-the-bus\n");
  const tokenFile = write("token", "token-of-the-bus\n");
  for (const wrong of [
    { user: "u" },
    { passwordFile },
    { user: "u", passwordFile, tokenFile },
    { tokenFile, nkeySeedFile: tokenFile },
    { credsFile: tokenFile, nkeySeedFile: tokenFile },
  ] as Partial<BusSettings>[]) {
    const opened = await open(wrong);
    t.match(opened, { ok: false, error: { code: "BATON_CONFIG_INVALID", message: /set one of/ } });
  }
  t.match(await open({ user: "u", passwordFile: "/nowhere/at/all" }), {
    ok: false,
    error: { code: "BATON_CONFIG_INVALID", message: /\/nowhere\/at\/all/ },
  });
  for (const right of [{}, { user: "u", passwordFile }, { tokenFile }] as Partial<BusSettings>[]) {
    const opened = await open(right);
    t.match(opened, { ok: false, error: { code: "BATON_BUS_UNREACHABLE" } });
    t.notMatch(JSON.stringify(opened), /secret-of-the-bus|token-of-the-bus/);
  }
});

t.test("the bus section takes nats and tls, nothing else", async (t) => {
  const schema = z.strictObject({ bus: busSection() });
  const at = (url: string) =>
    loadConfig({ schema, file: null, env: {}, overrides: { "bus.url": url } }).ok;
  t.same(["nats://h:4222", "tls://h", "http://h", "h:4222"].map(at), [true, true, false, false]);
});

t.test("each worker is called with its own token, the others with the common one", async (t) => {
  const write = folder(t);
  const server = createServer((request, response) => {
    response.end(request.headers.authorization ?? "none");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const settings = {
    connectTimeoutMs: 2_000,
    keepAliveIdleMs: 4_000,
    connectionsPerWorkerMax: 4,
    tokenFile: write("common", "token-of-all\n"),
    caFile: null,
    credentials: [
      { workerId: "p1", tokenFile: write("p1", "token-of-p1\n"), caFile: null },
      { workerId: "p2", tokenFile: null, caFile: null },
    ],
  };
  const logger = new MemoryLogger();
  const client = openEngineClient(settings, logger);
  if (!client.ok) throw new Error(client.error.message);
  t.teardown(async () => {
    await client.value.close();
    server.close();
  });
  const seenBy = async (workerId: string) => {
    const call = { workerId, url, method: "GET", path: "/", timeoutMs: 5_000 } as const;
    const answer = await client.value.fetchText({ ...call, bodyLimitBytes: 1_000 });
    return answer.ok ? answer.value.text : answer.error.message;
  };
  t.equal(await seenBy("p0"), "Bearer token-of-all");
  t.equal(await seenBy("p1"), "Bearer token-of-p1");
  t.equal(await seenBy("p2"), "none");
  for (const broken of [
    { ...settings, tokenFile: "/nowhere/at/all" },
    { ...settings, caFile: "/nowhere/at/all" },
    { ...settings, credentials: [{ workerId: "p1", tokenFile: null, caFile: "/nowhere/at/all" }] },
  ]) {
    t.match(openEngineClient(broken, logger), {
      ok: false,
      error: { code: "BATON_CONFIG_INVALID", message: /\/nowhere\/at\/all/ },
    });
  }
  t.match(readTextFile("engine.caFile", "/nowhere"), {
    ok: false,
    error: { message: "engine.caFile: /nowhere cannot be read" },
  });
});

const services: readonly BusService[] = ["frontend", "prefill-scheduler", "decode-scheduler"];
const secret = { kind: "password", password: "x" } as const;

function covers(pattern: string, subject: string): boolean {
  const [tokens, given] = [pattern.split("."), subject.split(".")];
  return (
    tokens.length === given.length && tokens.every((each, at) => each === "*" || each === given[at])
  );
}

t.test("no NATS user can speak as another service or hear what is another's", async (t) => {
  const verbs = [
    "place",
    "reserve",
    "handle",
    "decisions",
    "outcome",
    "frontend",
    "fleet",
  ] as const;
  // Who may send and who hears each subject; all other pairs are forbidden.
  const table = (["prefill", "decode"] as const).flatMap((pool) =>
    verbs
      .filter((verb) =>
        pool === "prefill" ? !["reserve", "handle"].includes(verb) : verb !== "place",
      )
      .map((verb) => {
        const scheduler = `${pool}-scheduler`;
        const [from, to] = verb === "fleet" ? [scheduler, "frontend"] : ["frontend", scheduler];
        return { subject: subjectOf("org/model.v1", pool, verb), from, to };
      }),
  );
  t.equal(table.length, 11);
  for (const service of services) {
    const user = natsUserOf(service, secret);
    for (const { subject, from, to } of table) {
      const maySend = user.publish.some((each) => covers(each, subject));
      const mayHear = user.subscribe.some((each) => covers(each, subject));
      // The prefill pool's restarts void handles, so the decode-scheduler hears of them too.
      const isTold = subject.endsWith(".prefill.fleet") && service === "decode-scheduler";
      const expected = [service === from, service === to || isTold];
      t.same([maySend, mayHear], expected, `${service} on ${subject}`);
    }
  }
  const inboxes = services.map((service) => natsUserOf(service, secret).inboxPrefix);
  t.equal(new Set(inboxes).size, 3, "nobody reads another's answers");
  const text = renderNatsAuthorization(services.map((service) => natsUserOf(service, secret)));
  t.equal(text.match(/allow_responses/g)?.length, 2);
});

const definitions = defineMetrics({
  baton_x_total: { kind: "counter", help: "Anything.", labels: [] },
});

t.test("a scheduler's admin port says what is missing and shows its decisions", async (t) => {
  const write = folder(t);
  const queries: unknown[] = [];
  let missing = ["no prefill worker is up"];
  const scheduler = {
    missing: () => missing,
    workers: () => ({ status: 200, body: { workers: [] } }),
    decisions(query: unknown) {
      queries.push(query);
      return { status: 200, body: { records: [] } };
    },
  };
  const ports = {
    metrics: createMetrics(definitions, { defaultLabels: { service: "x" } }),
    logger: new MemoryLogger(),
  };
  const tokenFile = write("token", "token-of-the-admin\n");
  const settings = { host: "127.0.0.1", port: 0, tokenFile, insecure: false };
  const admin = await serveSchedulerAdmin(settings, scheduler, ports);
  if (!admin.ok) throw new Error(admin.error.message);
  t.teardown(() => admin.value.close());
  const get = async (path: string, token = "token-of-the-admin") => {
    const headers = { authorization: `Bearer ${token}` };
    const answer = await fetch(admin.value.url + path, { headers });
    return { status: answer.status, text: await answer.text() };
  };
  t.match(await get("/ready", ""), { status: 503, text: /no prefill worker is up/ });
  missing = [];
  t.match(await get("/ready", ""), { status: 200 });
  t.match(await get("/health", ""), { status: 200 });
  t.match(await get("/metrics"), { status: 200, text: /baton_x_total\{service="x"\} 0\n/ });
  t.match(await get("/metrics"), { text: /process_/ });
  t.match(await get("/metrics", "wrong-token-of-it"), { status: 401 });
  t.match(await get("/debug/workers"), { status: 200, text: '{"workers":[]}' });
  for (const query of ["", "?request_id=r1&limit=7", "?limit=99999999", "?limit=-3", "?limit=x"]) {
    t.match(await get(`/debug/decisions${query}`), { status: 200 });
  }
  t.same(queries, [
    { requestId: null, limit: 100 },
    { requestId: "r1", limit: 7 },
    { requestId: null, limit: 10_000 },
    { requestId: null, limit: 100 },
    { requestId: null, limit: 100 },
  ]);
  const unreadable = { ...settings, tokenFile: "/nowhere/at/all" };
  t.match(await serveSchedulerAdmin(unreadable, scheduler, ports), { ok: false });
});

t.test("no two processes have one name", async (t) => {
  const [first, second] = [processIdentity("frontend"), processIdentity("frontend")];
  t.match(first.id, /^frontend-.+-[0-9a-f]{12}$/);
  t.not(first.id, second.id);
  t.ok(Number.isSafeInteger(first.seed) && first.seed >= 0);
});
