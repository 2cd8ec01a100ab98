import { Worker } from "node:worker_threads";
import { Prng } from "@baton/kit";
import { MemoryLogger } from "@baton/ports/testing";
import fc from "fast-check";
import t from "tap";
import {
  makeCall,
  makeClient,
  Recorder,
  serveHttp,
  serveTcp,
  sse,
  until,
} from "./fixtures/support.ts";

t.test("the call's own timeouts decide, before the head and within the body", async (t) => {
  const { url, sockets } = await serveHttp(t, (request, response) => {
    if (request.url === "/silent") return;
    response.writeHead(200, sse);
    response.write("data: 1\n\n");
  });
  const client = makeClient(t);
  const silent = new Recorder();
  client.dispatch(makeCall(url, { path: "/silent", headersTimeoutMs: 60 }), silent);
  const stuck = new Recorder();
  client.dispatch(makeCall(url, { bodyTimeoutMs: 60 }), stuck);
  await Promise.all([silent.done, stuck.done]);
  t.match(silent.fault, { error: { code: "BATON_ENGINE_TIMEOUT" }, dispatched: true });
  t.equal(silent.error?.message, `worker w1 at ${url}: no answer within 60 ms`);
  t.match(stuck.fault, { error: { code: "BATON_ENGINE_TIMEOUT" }, dispatched: true });
  t.same(stuck.events, ["head", "data", "fault"]);
  await until(() => sockets.size === 0);
});

const chunkedHead = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const faults = [
  ["no HTTP at all", "220 smtp ready\r\n", "BATON_ENGINE_GARBAGE"],
  ["a bad chunk size", `${chunkedHead}5\r\nhello\r\nzz\r\n`, "BATON_ENGINE_GARBAGE"],
  ["a huge head", `HTTP/1.1 200 OK\r\nx: ${"y".repeat(70_000)}\r\n`, "BATON_ENGINE_GARBAGE"],
  ["a close within chunks", `${chunkedHead}5\r\nhello\r\n`, "BATON_STREAM_BROKEN"],
  [
    "a close within chunks, announced",
    `HTTP/1.1 200 OK\r\nconnection: close\r\n${chunkedHead.slice(17)}5\r\nhello\r\n`,
    "BATON_STREAM_BROKEN",
  ],
  [
    "a close within a length",
    "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello",
    "BATON_STREAM_BROKEN",
  ],
  [
    "a close within a length, announced",
    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\nhello",
    "BATON_STREAM_BROKEN",
  ],
  ["a close within the head", "HTTP/1.1 200 OK\r\nserver: x", "BATON_ENGINE_UNREACHABLE"],
  ["a close before an answer", "", "BATON_ENGINE_UNREACHABLE"],
] as const;

for (const [name, answer, code] of faults) {
  t.test(`${name} is ${code}, and the request counts as dispatched`, async (t) => {
    let requests = 0;
    const { url } = await serveTcp(t, (socket) => {
      socket.once("data", () => {
        requests++;
        socket.end(answer);
      });
    });
    const recorder = new Recorder();
    makeClient(t).dispatch(makeCall(url), recorder);
    await recorder.done;
    t.equal(recorder.ends, 1);
    t.match(recorder.fault, { error: { code }, dispatched: true });
    t.ok(recorder.error?.message.includes("w1") && recorder.error.message.includes(url));
    t.equal(requests, 1, "it is not sent again");
  });
}

t.test("no connection is told as not dispatched", async (t) => {
  const { url: taken } = await serveTcp(t, () => {});
  const gone = await serveHttp(t, () => {});
  await new Promise((resolve) => gone.server.close(resolve));
  const client = makeClient(t);
  const cases = [
    [makeCall(gone.url), "BATON_ENGINE_UNREACHABLE", /w1 at http.*no connection/],
    [makeCall(`https${taken.slice(4)}`), "BATON_ENGINE_UNREACHABLE", /no connection/, "tls"],
    [makeCall("nonsense"), "BATON_ENGINE_UNREACHABLE", /no HTTP origin/],
    [makeCall("http://127.0.0.1:1/path"), "BATON_ENGINE_UNREACHABLE", /no HTTP origin/],
    [makeCall(gone.url, { headers: { "x-a": "line\nbreak" } }), "BATON_BAD_REQUEST", /as HTTP/],
  ] as const;
  for (const [call, code, message, tls] of cases) {
    const recorder = new Recorder();
    const options = tls === undefined ? client : makeClient(t, { connectTimeoutMs: 50 });
    options.dispatch(call, recorder);
    t.same(recorder.events, [], "nothing is called from inside dispatch");
    await recorder.done;
    t.match(recorder.fault, { error: { code }, dispatched: false });
    t.match(recorder.error?.message, message);
    t.same(recorder.events, ["fault"]);
  }
});

t.test("exactly one end is told, whatever the engine and the caller do", async (t) => {
  const answers = ["", "garbage\r\n\r\n", ...faults.map((fault) => fault[1])];
  answers.push(`${chunkedHead}5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n`);
  let answer = "";
  let isReset = false;
  const { url } = await serveTcp(t, (socket) => {
    socket.once("data", () => {
      if (answer !== "") socket.write(answer);
      if (isReset) socket.resetAndDestroy();
      else socket.end();
    });
  });
  const client = makeClient(t);
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...answers),
      fc.boolean(),
      fc.constantFrom("never", "at once", "soon", "at head", "at data", "at end"),
      async (text, reset, abortAt) => {
        answer = text;
        isReset = reset;
        const recorder = new Recorder();
        const { onHead, onData, onEnd } = recorder;
        recorder.onHead = (status, headers) => {
          onHead.call(recorder, status, headers);
          if (abortAt === "at head") exchange.abort();
        };
        recorder.onData = (bytes) => {
          onData.call(recorder, bytes);
          if (abortAt === "at data") exchange.abort();
        };
        recorder.onEnd = () => {
          onEnd.call(recorder);
          if (abortAt === "at end") exchange.abort();
        };
        const exchange = client.dispatch(makeCall(url), recorder);
        if (abortAt === "at once") exchange.abort();
        if (abortAt === "soon") setImmediate(() => exchange.abort());
        await recorder.done;
        t.match(recorder.events.join(" "), /^(head )?(data )?(end|fault)$/);
      },
    ),
    { numRuns: 120 },
  );
});

/** Sequential requests in lanes against a server of another thread, until `isEnough`. */
async function raceIdleCloses(
  t: { teardown(callback: () => unknown): void },
  options: {
    idleMs: readonly [number, number];
    keepAliveIdleMs: number;
    pauseMsMax: number;
    method: "GET" | "POST";
  },
  isEnough: (state: { requests: number; faults: number; retries: number }) => boolean,
) {
  const seed = 5;
  const server = new Worker(new URL("./fixtures/idle-closing-server.ts", import.meta.url), {
    workerData: { seed, idleMs: options.idleMs },
  });
  t.teardown(() => server.terminate());
  const executed = new Map<string, number>();
  let port = 0;
  server.on("message", (message: { port?: number; executed?: string }) => {
    if (message.port !== undefined) port = message.port;
    if (message.executed !== undefined)
      executed.set(message.executed, (executed.get(message.executed) ?? 0) + 1);
  });
  await until(() => port !== 0);
  const logger = new MemoryLogger();
  const client = makeClient(t, { keepAliveIdleMs: options.keepAliveIdleMs, logger });
  const random = new Prng(seed);
  const retries = () => logger.lines.filter((line) => line.message.includes("repeated")).length;
  const ids: { id: string; recorder: Recorder }[] = [];
  const faults = () => ids.filter(({ recorder }) => recorder.fault !== null);
  const endMs = performance.now() + 20_000;
  const lane = async () => {
    for (;;) {
      const state = { requests: ids.length, faults: faults().length, retries: retries() };
      if (isEnough(state) || performance.now() > endMs) return;
      const recorder = new Recorder();
      const id = `request ${ids.length}`;
      ids.push({ id, recorder });
      const body = options.method === "GET" ? [] : [Buffer.from(id)];
      const url = `http://127.0.0.1:${port}`;
      client.dispatch(makeCall(url, { method: options.method, body }), recorder);
      await recorder.done;
      await new Promise((resolve) => setTimeout(resolve, random.next() * options.pauseMsMax));
    }
  };
  await Promise.all(Array.from({ length: 20 }, lane));
  return { executed, faults: faults(), ids, retries: retries() };
}

t.test("a limit below the engine's own leaves no race: 600 POSTs, no error", async (t) => {
  const race = await raceIdleCloses(
    t,
    { idleMs: [60, 120], keepAliveIdleMs: 25, pauseMsMax: 150, method: "POST" },
    (state) => state.requests >= 600,
  );
  t.same(race.faults, []);
  t.equal(race.executed.size, race.ids.length);
});

t.test("a GET that lost the race with an idle close is repeated, without an error", async (t) => {
  const race = await raceIdleCloses(
    t,
    { idleMs: [0, 50], keepAliveIdleMs: 4_000, pauseMsMax: 50, method: "GET" },
    (state) => state.requests >= 600 && state.retries >= 2,
  );
  t.ok(race.retries >= 2, "the race was lost at least twice");
  t.same(race.faults, []);
});

t.test("a POST that lost the race runs once at most, and is told as dispatched", async (t) => {
  const race = await raceIdleCloses(
    t,
    { idleMs: [0, 50], keepAliveIdleMs: 4_000, pauseMsMax: 50, method: "POST" },
    (state) => state.requests >= 600 && state.faults >= 2,
  );
  t.ok(race.faults.length >= 2, "the race was lost at least twice");
  for (const { recorder } of race.faults) {
    t.match(recorder.fault, { error: { code: "BATON_ENGINE_UNREACHABLE" }, dispatched: true });
  }
  for (const [id, times] of race.executed) if (times !== 1) t.fail(`${id} ran ${times} times`);
});

t.test("a POST that was cut off while it went out is repeated once, whole", async (t) => {
  let connections = 0;
  let whole = 0;
  const { url } = await serveTcp(t, (socket) => {
    const isFirst = ++connections === 1;
    let received = 0;
    socket.on("data", (bytes) => {
      received += bytes.length;
      if (isFirst) socket.destroy();
      else if (received > 8_000_000) {
        whole++;
        socket.end("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
      }
    });
  });
  const logger = new MemoryLogger();
  const recorder = new Recorder();
  const body = Array.from({ length: 80 }, () => Buffer.alloc(100_000));
  makeClient(t, { logger }).dispatch(makeCall(url, { body }), recorder);
  await recorder.done;
  t.same(recorder.events, ["head", "end"]);
  t.same([connections, whole], [2, 1]);
  t.match(logger.lines.at(-1), { message: "request repeated on a new connection" });
});

t.test("a POST that is cut off twice is a fault, told as not dispatched", async (t) => {
  let connections = 0;
  const { url } = await serveTcp(t, (socket) => {
    connections++;
    socket.once("data", () => socket.destroy());
  });
  const recorder = new Recorder();
  const body = Array.from({ length: 80 }, () => Buffer.alloc(100_000));
  makeClient(t).dispatch(makeCall(url, { body }), recorder);
  await recorder.done;
  t.match(recorder.fault, { error: { code: "BATON_ENGINE_UNREACHABLE" }, dispatched: false });
  t.equal(connections, 2);
});
