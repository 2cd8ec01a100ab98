import { createServer, type Socket } from "node:net";
import type { BusState } from "@baton/ports";
import type { Test } from "tap";
import { type BusFault, connectNatsBus } from "../src/index.ts";
import { startNatsServer } from "../src/testing.ts";
import { testLifecycle } from "./contract-lifecycle.ts";
import { testPublications } from "./contract-publications.ts";
import { testRequests } from "./contract-requests.ts";
import { bytes, type Harness, longMs, until } from "./harness.ts";
import { connected, connectOnce, runWithNats, started } from "./nats-harness.ts";

async function testContract(t: Test): Promise<void> {
  const server = await started(t, "");
  const harness: Harness = {
    connect: (options) => connected(t, { url: server.url, name: "contract", ...options }),
    interrupt: () => server.stop(),
    resume: () => server.restart(),
  };
  await t.test("requests", async (t) => testRequests(t, harness));
  await t.test("publications", async (t) => testPublications(t, harness));
  await t.test("lifecycle", async (t) => testLifecycle(t, harness));
}

async function testAbsent(t: Test): Promise<void> {
  const silent = createServer((socket) => sockets.add(socket));
  const sockets = new Set<Socket>();
  silent.listen(0, "127.0.0.1");
  await until(() => silent.listening, "the silent server listens");
  t.teardown(() => {
    for (const socket of sockets) socket.destroy();
    silent.close();
  });
  const { port } = silent.address() as { port: number };
  const expected = { ok: false, error: { code: "BATON_BUS_UNREACHABLE" } };
  // Nothing listens on port 1; the other takes connections and says nothing.
  for (const where of ["127.0.0.1:1", `127.0.0.1:${port}`]) {
    const faults: BusFault[] = [];
    const onError = (fault: BusFault): unknown => faults.push(fault);
    const url = `nats://someone:hush%20now@${where}`;
    const outcome = await connectNatsBus({ url, name: "x", connectMsMax: 200, onError });
    t.match(outcome, expected);
    t.match(faults, [{ kind: "connection", error: expected.error }]);
    const said = JSON.stringify([outcome, faults]);
    t.match(said, `nats://someone:***@${where}`);
    t.notMatch(said, "hush");
  }
  t.match(await connectOnce({ url: "nats://127.0.0.1:1", name: "x" }), {
    ok: false,
    error: { code: "BATON_BUS_UNREACHABLE", cause: /refused/ },
  });
}

async function testLateServer(t: Test): Promise<void> {
  const late = await started(t, "");
  await late.stop();
  const faults: BusFault[] = [];
  const connecting = connectNatsBus({
    url: `nats://127.0.0.1:1,${late.url}`,
    name: "early",
    connectMsMax: Number.POSITIVE_INFINITY,
    onError: (fault) => faults.push(fault),
  });
  await until(() => faults.length === 1, "the first attempt has failed");
  await late.restart();
  const outcome = await connecting;
  t.ok(outcome.ok);
  if (outcome.ok) await outcome.value.drain();
  t.equal(faults.length, 1, "said once, not with every attempt");
}

async function testAborted(t: Test): Promise<void> {
  const ending = new AbortController();
  const outcome = await connectNatsBus({
    url: "nats://127.0.0.1:1",
    name: "x",
    connectMsMax: Number.POSITIVE_INFINITY,
    signal: ending.signal,
    onError: () => ending.abort(),
  });
  t.match(outcome, { ok: false, error: { code: "BATON_BUS_UNREACHABLE" } });
  const again = await connectNatsBus({
    url: "nats://127.0.0.1:1",
    name: "x",
    signal: AbortSignal.abort(),
    connectMsMax: Number.POSITIVE_INFINITY,
  });
  t.match(again, { ok: false, error: { code: "BATON_BUS_UNREACHABLE" } });
}

async function testBadUrls(t: Test): Promise<void> {
  const urls = [
    "",
    "localhost:4222",
    "http://u:hush@h:1",
    "nats://",
    "nats://h:port",
    "nats://u:hush@h/path",
    "nats://u:%hush@h",
    "nats://u:hush@h,nats://u:hush2@h",
    "nats://h,",
  ];
  for (const url of urls) {
    const outcome = await connectNatsBus({ url, name: "x" });
    t.match(outcome, { ok: false, error: { code: "BATON_CONFIG_INVALID" } }, url);
    t.notMatch(JSON.stringify(outcome), "hush");
  }
  const twice = await connectNatsBus({
    url: "nats://u:hush@h",
    auth: { kind: "token", token: "hush" },
    name: "x",
  });
  t.match(twice, { ok: false, error: { code: "BATON_CONFIG_INVALID" } });
  const prefix = await connectNatsBus({ url: "nats://h", name: "x", inboxPrefix: "a.*" });
  t.match(prefix, { ok: false, error: { code: "BATON_CONFIG_INVALID" } });
}

async function testOtherLimit(t: Test): Promise<void> {
  const server = await started(t, "max_payload: 8192");
  const bus = await connected(t, { url: server.url, name: "x", onError: () => {} });
  bus.serve("x", { queue: "q" }, ({ payload }) => payload);
  t.equal(bus.maxPayloadBytes, 8192);
  const states: BusState[] = [];
  bus.onState((state) => states.push(state));
  await server.restart({ config: "max_payload: 100" });
  await until(() => states.includes("connected"), "the bus is back");
  t.equal(bus.maxPayloadBytes, 100);
  const ask = (size: number) => bus.request("x", new Uint8Array(size), { deadlineMs: longMs });
  t.match(await ask(101), { ok: false, error: { code: "BATON_BUS_PAYLOAD_TOO_LARGE" } });
  t.ok((await ask(100)).ok);
  bus.serve("fails", { queue: "q" }, () => {
    throw new Error("a text of more than a hundred bytes, ".repeat(5));
  });
  const failed = await bus.request("fails", bytes("?"), { deadlineMs: longMs });
  t.match(failed, { ok: false, error: { code: "BATON_BUS_HANDLER_FAILED" } });
}

async function testStalled(t: Test): Promise<void> {
  const server = await started(t, "");
  const bus = await connected(t, {
    url: server.url,
    name: "x",
    outboundBytesMax: 2 * 1024 * 1024,
    pingIntervalMs: 600_000,
    limits: { pendingBytesMax: 16 * 1024 * 1024 },
  });
  let received = 0;
  bus.subscribe("x", {}, () => received++);
  await bus.flush();
  process.kill(server.pid, "SIGSTOP");
  let sent = 0;
  const payload = new Uint8Array(64 * 1024);
  let outcome = bus.publish("x", payload);
  for (; outcome.ok && sent < 1000; sent++) outcome = bus.publish("x", payload);
  t.match(outcome, { ok: false, error: { code: "BATON_SATURATED" } });
  t.ok(sent < 64, `${sent} messages of 64 KiB went out`);
  const asked = await bus.request("x", payload, { deadlineMs: longMs });
  t.match(asked, { ok: false, error: { code: "BATON_SATURATED" } });
  process.kill(server.pid, "SIGCONT");
  await until(() => received === sent, "all that was sent has arrived");
  await bus.flush();
  t.ok(bus.publish("x", payload).ok, "there is room again");

  // With short pings a server that stays silent is left, and found again when it speaks.
  const watchful = await connected(t, {
    url: server.url,
    name: "y",
    pingIntervalMs: 20,
    onError: () => {},
  });
  process.kill(server.pid, "SIGSTOP");
  await until(() => watchful.state() === "reconnecting", "the silence is noticed");
  process.kill(server.pid, "SIGCONT");
  await until(() => watchful.state() === "connected", "the bus is back");
}

async function testServerHelper(t: Test): Promise<void> {
  await t.rejects(
    startNatsServer({ config: "max_payload: much" }),
    /did not start: .*nats-server.conf/s,
  );
  const server = await started(t, "");
  const { port, pid } = server;
  process.kill(pid, "SIGKILL");
  await server.restart();
  t.equal(server.port, port);
  t.not(server.pid, pid);
  await server.stop();
  await server.stop();
  t.throws(() => server.pid, /does not run/);
  const named = process.env["BATON_NATS_SERVER"];
  t.teardown(() => {
    if (named === undefined) delete process.env["BATON_NATS_SERVER"];
    else process.env["BATON_NATS_SERVER"] = named;
  });
  process.env["BATON_NATS_SERVER"] = "/nowhere/nats-server";
  await t.rejects(startNatsServer(), /BATON_NATS_SERVER is/);
}

await runWithNats({
  "the test server says why it does not start, and keeps its port": testServerHelper,
  "the bus contract": testContract,
  "a server that is not there is an error that names it": testAbsent,
  "a server that comes later is found": testLateServer,
  "the wait for the first connection can be ended": testAborted,
  "bad URLs are configuration errors without secrets": testBadUrls,
  "the limit follows the server through a restart": testOtherLimit,
  "a server that stops reading is noticed, and nothing piles up": testStalled,
});
