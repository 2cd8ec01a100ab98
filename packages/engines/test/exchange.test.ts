import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Prng } from "@baton/kit";
import { MemoryLogger } from "@baton/ports/testing";
import fc from "fast-check";
import t from "tap";
import {
  makeCall,
  makeClient,
  makeFetch,
  Recorder,
  serveHttp,
  sse,
  until,
} from "./fixtures/support.ts";

t.test("an exchange is head, data in order, end, with the request as it was given", async (t) => {
  const seen: { method: string; path: string; headers: object; body: string }[] = [];
  const { url, server } = await serveHttp(t, (request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      seen.push({ method: request.method!, path: request.url!, headers: request.headers, body });
      response.writeHead(200, { ...sse, "x-twice": ["a", "b"] });
      let next = 0;
      const send = () => {
        if (next === 200) response.end();
        else response.write(`data: ${next++}\n\n`, () => setImmediate(send));
      };
      send();
    });
  });
  const client = makeClient(t, { credentials: () => ({ bearerToken: "secret" }) });
  const recorder = new Recorder();
  client.dispatch(
    makeCall(url, {
      headers: { "content-type": "application/json", authorization: "Bearer of-the-client" },
      body: [Buffer.from('{"a"'), Buffer.from(":1}")],
    }),
    recorder,
  );
  t.same(recorder.events, [], "nothing is called from inside dispatch");
  await recorder.done;
  t.same(recorder.events, ["head", "data", "end"]);
  t.equal(recorder.status, 200);
  t.equal(recorder.headers["x-twice"], "a, b");
  const expected = Array.from({ length: 200 }, (_, index) => `data: ${index}\n\n`).join("");
  t.equal(recorder.body.toString(), expected);
  t.match(seen, [
    {
      method: "POST",
      path: "/v1/completions",
      body: '{"a":1}',
      headers: {
        authorization: "Bearer secret",
        "content-length": "7",
        host: `127.0.0.1:${(server.address() as AddressInfo).port}`,
      },
    },
  ]);
});

t.test("bodies of any chunking arrive byte for byte, up to megabytes both ways", async (t) => {
  const lengths: (string | undefined)[] = [];
  const { url } = await serveHttp(t, (request, response) => {
    lengths.push(request.headers["content-length"]);
    response.writeHead(200);
    request.pipe(response);
  });
  const client = makeClient(t);
  const echo = async (chunks: readonly Uint8Array[]) => {
    const recorder = new Recorder();
    client.dispatch(makeCall(url, { body: chunks }), recorder);
    await recorder.done;
    const body = Buffer.concat(chunks);
    return recorder.ends === 1 && recorder.fault === null && recorder.body.equals(body);
  };
  const random = new Prng(7);
  const large = Buffer.from(Uint8Array.from({ length: 5_000_000 }, () => random.below(256)));
  t.ok(await echo([large]), "5 MB in one chunk");
  t.ok(await echo([large.subarray(0, 9), large.subarray(9, -1), large.subarray(-1)]), "in three");
  t.same(lengths, ["5000000", "5000000"], "the length is declared, not chunked");
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.uint8Array({ maxLength: 40_000 }), { minLength: 1, maxLength: 5 }),
      echo,
    ),
    { numRuns: 30 },
  );
});

t.test("abort before the head and within the body closes the engine's socket", async (t) => {
  let requests = 0;
  const { url, sockets } = await serveHttp(t, (request, response) => {
    requests++;
    if (request.url === "/silent") return;
    response.writeHead(200, sse);
    response.write("data: 1\n\n");
  });
  const client = makeClient(t);
  for (const path of ["/silent", "/stream"]) {
    const recorder = new Recorder();
    const exchange = client.dispatch(makeCall(url, { path }), recorder);
    await until(() => (path === "/silent" ? requests === 1 : recorder.chunks.length === 1));
    t.equal(sockets.size, 1);
    const eventsBefore = [...recorder.events];
    exchange.abort();
    exchange.abort();
    t.same(recorder.events, eventsBefore, "nothing is called from inside abort");
    await until(() => sockets.size === 0);
    await recorder.done;
    t.equal(recorder.ends, 1);
    t.match(recorder.fault, { error: { code: "BATON_CLIENT_CLOSED" }, dispatched: true });
  }
});

t.test("an exchange aborted before its connection stands never reaches the engine", async (t) => {
  const paths: string[] = [];
  const { url } = await serveHttp(t, (request, response) => {
    paths.push(request.url!);
    response.end();
  });
  const client = makeClient(t);
  const recorder = new Recorder();
  client.dispatch(makeCall(url, { path: "/aborted" }), recorder).abort();
  await recorder.done;
  t.match(recorder.fault, { error: { code: "BATON_CLIENT_CLOSED" }, dispatched: false });
  t.equal((await client.fetchText(makeFetch(url, "/after"))).ok, true);
  t.same(paths, ["/after"]);
});

t.test("abort after the end changes nothing", async (t) => {
  const { url, sockets } = await serveHttp(t, (_request, response) => response.end("x"));
  const recorder = new Recorder();
  const exchange = makeClient(t).dispatch(makeCall(url), recorder);
  await recorder.done;
  exchange.abort();
  await new Promise(setImmediate);
  t.same(recorder.events, ["head", "data", "end"]);
  t.equal(sockets.size, 1, "the connection stays for reuse");
});

t.test("an idle connection closes by our limit, whatever the engine promises", async (t) => {
  const { url, sockets } = await serveHttp(t, (_request, response) => {
    response.setHeader("keep-alive", "timeout=600");
    response.end("x");
  });
  const client = makeClient(t, { keepAliveIdleMs: 20 });
  t.ok((await client.fetchText(makeFetch(url, "/"))).ok);
  await until(() => sockets.size === 0, 2_000);
});

t.test("pause holds data back and lets the engine feel it; resume gets all of it", async (t) => {
  const total = 20_000_000;
  let stalled = false;
  const { url } = await serveHttp(t, (_request, response) => {
    response.writeHead(200, { "content-length": String(total) });
    stalled = !response.write(Buffer.alloc(total - 1, 1));
    response.once("drain", () => {
      stalled = false;
    });
    response.end(Buffer.alloc(1, 1));
  });
  const client = makeClient(t);
  const recorder = new Recorder();
  const exchange = client.dispatch(makeCall(url), recorder);
  exchange.pause();
  await until(() => recorder.status === 200 && stalled);
  for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
  t.equal(recorder.chunks.length, 0);
  t.ok(stalled);
  exchange.resume();
  t.equal(recorder.chunks.length, 0, "nothing is called from inside resume");
  await until(() => recorder.chunks.length > 3);
  exchange.pause();
  const held = recorder.chunks.length;
  for (let turn = 0; turn < 50; turn++) await new Promise(setImmediate);
  t.ok(recorder.chunks.length <= held + 1, "at most the piece that is on its way");
  exchange.resume();
  await recorder.done;
  t.same(recorder.events, ["head", "data", "end"]);
  t.equal(recorder.body.length, total);
});

t.test("fetchText gives the whole text, or the error that stopped it", async (t) => {
  const { url, sockets } = await serveHttp(t, (request, response) => {
    if (request.url === "/silent") return;
    if (request.url === "/slow") response.write("never ending");
    else if (request.url === "/echo") request.pipe(response);
    else if (request.url === "/large") response.end("x".repeat(1_001));
    else {
      response.statusCode = 503;
      response.write(Buffer.from("grün").subarray(0, 3));
      setImmediate(() => response.end(Buffer.from("grün").subarray(3)));
    }
  });
  const client = makeClient(t);
  const fetch = (path: string, more = {}) => client.fetchText({ ...makeFetch(url, path), ...more });
  t.same(await fetch("/any"), { ok: true, value: { status: 503, text: "grün" } });
  t.same(await fetch("/echo", { method: "POST", body: '{"ä":1}' }), {
    ok: true,
    value: { status: 200, text: '{"ä":1}' },
  });
  const large = await fetch("/large");
  t.match(large, { ok: false, error: { code: "BATON_ENGINE_GARBAGE" } });
  t.match(large, { error: { message: /w1 at http.* more than 1000 bytes/ } });
  for (const path of ["/silent", "/slow"]) {
    const late = await fetch(path, { timeoutMs: 50 });
    t.match(late, { ok: false, error: { code: "BATON_ENGINE_TIMEOUT", message: /than 50 ms/ } });
  }
  await until(() => sockets.size <= 1);
});

t.test(
  "a forgotten worker's idle connections close and its running answer ends well",
  async (t) => {
    let finish = () => {};
    const { url, sockets } = await serveHttp(t, (request, response) => {
      if (request.url === "/stream") {
        response.write("a");
        finish = () => response.end("b");
      } else response.end("done");
    });
    const client = makeClient(t);
    const running = new Recorder();
    client.dispatch(makeCall(url, { path: "/stream" }), running);
    await client.fetchText(makeFetch(url, "/"));
    await until(() => running.chunks.length === 1);
    t.equal(sockets.size, 2);
    client.forget("w1");
    client.forget("w1");
    await until(() => sockets.size === 1);
    finish();
    await running.done;
    t.equal(running.body.toString(), "ab");
    t.same(running.events, ["head", "data", "end"]);
    await until(() => sockets.size === 0);
    t.equal((await client.fetchText(makeFetch(url, "/"))).ok, true, "a call opens a new pool");
  },
);

t.test("close fails what runs and refuses what comes", async (t) => {
  const { url, sockets } = await serveHttp(t, (_request, response) => response.write("a"));
  const client = makeClient(t);
  const running = new Recorder();
  client.dispatch(makeCall(url), running);
  await until(() => running.chunks.length === 1);
  await client.close();
  await running.done;
  t.match(running.fault, { error: { code: "BATON_DRAINING" }, dispatched: true });
  await until(() => sockets.size === 0);
  const late = new Recorder();
  client.dispatch(makeCall(url), late);
  await late.done;
  t.match(late.fault, { error: { code: "BATON_DRAINING" }, dispatched: false });
  await client.close();
});

t.test("exchanges over the limit of a worker are refused, and room comes back", async (t) => {
  const { url } = await serveHttp(t, (_request, response) => response.write("a"));
  const client = makeClient(t, { connectionsPerWorkerMax: 1 });
  const first = new Recorder();
  const exchange = client.dispatch(makeCall(url), first);
  const second = new Recorder();
  client.dispatch(makeCall(url), second);
  const other = new Recorder();
  client.dispatch(makeCall(url, { workerId: "w2" }), other).abort();
  await Promise.all([second.done, other.done]);
  t.match(second.fault, { error: { code: "BATON_SATURATED" }, dispatched: false });
  exchange.abort();
  await first.done;
  const third = new Recorder();
  client.dispatch(makeCall(url), third);
  await until(() => third.chunks.length === 1);
});

t.test("a throw of the handler reaches the process, and the connection closes", async (t) => {
  const { url, sockets } = await serveHttp(t, (_request, response) => response.write("a"));
  const client = makeClient(t);
  const thrown = new Error("a bug in the handler");
  const uncaught = new Promise((resolve) => {
    // tap listens too and would fail the test.
    const listeners = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.once("uncaughtException", (error) => {
      for (const listener of listeners) process.on("uncaughtException", listener);
      resolve(error);
    });
  });
  const recorder = new Recorder();
  recorder.onData = () => {
    throw thrown;
  };
  client.dispatch(makeCall(url), recorder);
  t.equal(await uncaught, thrown);
  await until(() => sockets.size === 0);
  t.equal(recorder.ends, 0);
});

t.test("limits that uvicorn would undercut are refused at birth", (t) => {
  t.throws(() => makeClient(t, { keepAliveIdleMs: 5_000 }), /keepAliveIdleMs/);
  t.throws(() => makeClient(t, { connectionsPerWorkerMax: 0 }), /connectionsPerWorkerMax/);
  t.end();
});

function hasOpenssl(): boolean {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

t.test(
  "TLS is spoken with the worker's own CA, and refused without",
  { skip: hasOpenssl() ? false : "no openssl command to make a certificate" },
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "baton-tls-"));
    t.teardown(() => rmSync(folder, { recursive: true }));
    const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
    const subject = ["-subj", "/CN=engine", "-addext", "subjectAltName=IP:127.0.0.1"];
    const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const files = ["-keyout", key, "-out", cert];
    execFileSync("openssl", ["req", "-x509", ...curve, ...files, ...subject], { stdio: "ignore" });
    const caPem = readFileSync(cert, "utf8");
    const server = createTlsServer({ key: readFileSync(key), cert: caPem }, (request, response) =>
      response.end(`${request.httpVersion} ${request.headers.authorization}`),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    t.teardown(() => {
      server.closeAllConnections();
      server.close();
    });
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    let credentials: { bearerToken: string; caPem?: string } = { bearerToken: "one" };
    const logger = new MemoryLogger();
    const client = makeClient(t, { credentials: () => credentials, logger });
    const refused = await client.fetchText(makeFetch(url, "/"));
    t.match(refused, { ok: false, error: { code: "BATON_ENGINE_UNREACHABLE" } });
    t.match(refused, { error: { cause: /SELF_SIGNED/ } });
    credentials = { bearerToken: "two", caPem };
    t.same(await client.fetchText(makeFetch(url, "/")), {
      ok: true,
      value: { status: 200, text: "1.1 Bearer two" },
    });
    t.notMatch(JSON.stringify([refused, logger.lines]), /Bearer|one|two/);
  },
);
