import { once } from "node:events";
import { connect } from "node:net";
import { InvariantError } from "@baton/kit";
import { MemoryLogger } from "@baton/ports/testing";
import {
  type AdminOptions,
  checkListenAddress,
  createMetrics,
  isLoopback,
  readiness,
  serveAdmin,
} from "@baton/service-host";
import t, { type Test } from "tap";

const logger = new MemoryLogger();

async function serve(t: Test, more: Partial<AdminOptions> = {}) {
  const served = await serveAdmin({
    host: "127.0.0.1",
    port: 0,
    ready: () => readiness([]),
    metricsText: async () => "baton_up_ratio 1\n",
    logger,
    ...more,
  });
  if (!served.ok) throw new Error(served.error.message);
  const { url, port, close } = served.value;
  t.teardown(close);
  const get = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(url + path, init);
    const text = await response.text();
    return { status: response.status, headers: response.headers, text };
  };
  return { get, port, close };
}

t.test("the probes tell life and readiness, and what is missing", async (t) => {
  let missing = ["bus: not connected", "prefill pool: no worker"];
  const { get } = await serve(t, { ready: () => readiness(missing) });
  t.match(await get("/health"), { status: 200, text: '{"alive":true}\n' });
  const before = await get("/ready");
  t.equal(before.status, 503);
  t.strictSame(JSON.parse(before.text), { ready: false, missing });
  missing = [];
  t.match(await get("/ready"), { status: 200, text: '{"ready":true,"missing":[]}\n' });
  const dead = await serve(t, { health: () => ({ status: 500, body: { alive: false } }) });
  t.equal((await dead.get("/health")).status, 500);
});

t.test("metrics are Prometheus text, debug is JSON, and a HEAD has no body", async (t) => {
  const metrics = createMetrics({
    baton_queue_tokens: { kind: "gauge", help: "Queued.", labels: [] },
  });
  const { get } = await serve(t, {
    metricsText: () => metrics.text(),
    debug: {
      "/debug/workers": async (query) => ({
        status: 200,
        body: { pool: query.get("pool"), sequence: 2n ** 60n },
      }),
      "/debug/gone": async () => ({ status: 410, body: null }),
    },
  });
  const scrape = await get("/metrics");
  t.equal(scrape.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  t.match(scrape.text, "# TYPE baton_queue_tokens gauge\nbaton_queue_tokens 0\n");
  const workers = await get("/debug/workers?pool=prefill%20a");
  t.match(workers.headers.get("content-type"), "application/json");
  t.strictSame(JSON.parse(workers.text), { pool: "prefill a", sequence: "1152921504606846976" });
  t.match(await get("/debug/gone"), { status: 410, text: "null\n" });
  t.strictSame(JSON.parse((await get("/debug")).text), {
    paths: ["/debug/gone", "/debug/workers"],
  });
  const head = await get("/metrics", { method: "HEAD" });
  t.match(head, { status: 200, text: "" });
  t.equal(head.headers.get("content-length"), `${scrape.text.length}`);
});

t.test("other paths, methods and broken requests are refused and do no harm", async (t) => {
  const { get, port } = await serve(t);
  for (const path of ["/", "/debug/x", "/debug/__proto__", "//health", "/metrics/", "/health%00"]) {
    const { status, text } = await get(path);
    t.equal(status, 404, path);
    t.match(JSON.parse(text), { error: { code: "BATON_UNKNOWN_ROUTE", nextStep: String } });
  }
  const post = await get("/ready", { method: "POST", body: "x".repeat(1_000_000) });
  t.match([post.status, post.headers.get("allow")], [405, "GET, HEAD"]);
  const socket = connect(port, "127.0.0.1");
  socket.end("rubbish\r\n\r\n");
  socket.resume();
  await once(socket, "close");
  t.equal((await get("/health")).status, 200);
});

t.test("a token guards metrics and debug, and leaves the probes open", async (t) => {
  const debug = { "/debug/a": async () => ({ status: 200, body: 1 }) };
  const { get } = await serve(t, { bearerToken: "right", debug });
  const status = async (path: string, authorization?: string) =>
    (await get(path, authorization === undefined ? {} : { headers: { authorization } })).status;
  for (const path of ["/metrics", "/debug", "/debug/a"]) {
    t.equal(await status(path), 401, path);
    for (const wrong of ["Bearer", "Bearer wrong", "Bearer righ", "Bearer rightt", "Basic right"]) {
      t.equal(await status(path, wrong), 401, wrong);
    }
    t.equal(await status(path, "Bearer right"), 200);
    t.equal(await status(path, "bearer  right"), 200);
  }
  t.equal(await status("/health"), 200);
  t.equal(await status("/ready"), 200);
});

t.test("a handler that fails answers 500 and is logged; the server goes on", async (t) => {
  const { get } = await serve(t, {
    metricsText: () => Promise.reject(new Error("secret detail")),
  });
  const { status, text } = await get("/metrics");
  t.equal(status, 500);
  t.notMatch(text, "secret detail");
  t.match(logger.lines.at(-1), {
    level: "error",
    message: "admin request failed",
    fields: { path: "/metrics" },
  });
  t.equal((await get("/health")).status, 200);
});

t.test("a broken invariant in a handler reaches the crash handler", async (t) => {
  const { get } = await serve(t, {
    debug: { "/debug/a": () => Promise.reject(new InvariantError("broken")) },
  });
  const others = process.listeners("unhandledRejection");
  process.removeAllListeners("unhandledRejection");
  t.teardown(() => {
    for (const listener of others) process.on("unhandledRejection", listener);
  });
  const crash = once(process, "unhandledRejection");
  t.equal((await get("/debug/a")).status, 500);
  t.match((await crash)[0], { name: "InvariantError", message: "broken" });
});

t.test(
  "a taken port, an address of others and an open port without a token are errors",
  async (t) => {
    const { port } = await serve(t);
    const attempt = async (more: Partial<AdminOptions>) => {
      const served = await serveAdmin({
        host: "127.0.0.1",
        port: 0,
        ready: () => readiness([]),
        metricsText: async () => "",
        logger,
        ...more,
      });
      if (!served.ok) return { code: served.error.code, message: served.error.message };
      await served.value.close();
      return { code: "", message: "" };
    };
    t.strictSame(await attempt({ port }), {
      code: "BATON_PORT_IN_USE",
      message: `127.0.0.1:${port} is taken by another process.`,
    });
    t.match(await attempt({ host: "192.0.2.1", insecure: true }), {
      code: "BATON_CONFIG_INVALID",
      message: /Cannot listen on 192\.0\.2\.1:0/,
    });
    t.match(await attempt({ host: "0.0.0.0" }), {
      code: "BATON_CONFIG_INVALID",
      message: /no admin\.tokenFile is set/,
    });
    t.match(await attempt({ host: "0.0.0.0", bearerToken: "x" }), { code: "" });
    t.match(await attempt({ host: "0.0.0.0", insecure: true }), { code: "" });
    await t.rejects(attempt({ bearerToken: "" }), /an empty token is no token/);
    await t.rejects(
      attempt({ debug: { "/other": async () => ({ status: 200, body: 1 }) } }),
      /must begin with \/debug\//,
    );
  },
);

t.test("only loopback is safe without keys", (t) => {
  for (const host of [
    "127.0.0.1",
    "127.1.2.3",
    "::1",
    "[::1]",
    "0:0:0:0:0:0:0:1",
    "::ffff:127.0.0.1",
    "localhost",
    "LOCALHOST",
  ]) {
    t.ok(isLoopback(host), host);
    t.ok(checkListenAddress({ host, hasKeys: false, insecure: false }).ok, host);
  }
  for (const host of [
    "0.0.0.0",
    "::",
    "10.0.0.1",
    "1270.0.0.1",
    "127.evil.org",
    "::1%eth0",
    "localhost.evil.org",
    "",
    "::ffff:10.0.0.1",
    "fe80::1",
  ]) {
    t.notOk(isLoopback(host), host);
    t.match(checkListenAddress({ host, hasKeys: false, insecure: false }), {
      ok: false,
      error: { code: "BATON_CONFIG_INVALID" },
    });
    t.ok(checkListenAddress({ host, hasKeys: true, insecure: false }).ok);
    t.ok(checkListenAddress({ host, hasKeys: false, insecure: true }).ok);
  }
  t.end();
});

t.test("close ends open connections and may be called twice", async (t) => {
  const { port, close } = await serve(t);
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  const closed = once(socket, "close");
  await close();
  await closed;
  await close();
});
