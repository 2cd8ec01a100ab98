import { createHash } from "node:crypto";
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { connect, createServer, type Socket } from "node:net";
import { batonError } from "@baton/domain";
import { type FrontendServer, type HttpEdgeOptions, serveFrontend } from "@baton/http-edge";
import type { ClientRequest, FrontendApi, ResponseSink } from "@baton/ports";
import { MemoryLogger } from "@baton/ports/testing";
import OpenAI from "openai";
import t, { type Test } from "tap";

type Generate = (request: ClientRequest, sink: ResponseSink) => void;

const mebibyte = 1024 * 1024;
const json = { "content-type": "application/json" };
const sse = { "content-type": "text/event-stream; charset=utf-8" };
const bytes = (text: string): Uint8Array => Buffer.from(text);
const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

async function serve(t: Test, generate: Generate, more: Partial<HttpEdgeOptions> = {}) {
  const logger = new MemoryLogger();
  const api: FrontendApi = {
    generate,
    models: () => ({ status: 200, body: { object: "list", data: [{ id: "m", object: "model" }] } }),
    health: () => ({ status: 200, body: { ok: true } }),
    ready: () => ({ status: 503, body: { missing: ["decode"] } }),
    decisions: async (query) => ({ status: 200, body: query }),
  };
  let ids = 0;
  const served = await serveFrontend({
    api,
    host: "127.0.0.1",
    port: 0,
    apiKeys: null,
    metricsText: async () => "baton_up 1\n",
    logger,
    requestId: () => `r-${++ids}`,
    ...more,
  });
  if (!served.ok) throw new Error(served.error.message);
  t.teardown(() => served.value.close(0));
  return { server: served.value, logger };
}

function post(
  server: FrontendServer,
  body: string | Uint8Array | ReadableStream,
  headers: Record<string, string> = json,
) {
  const init = { method: "POST", headers, body, duplex: "half" };
  return fetch(`${server.url}/v1/chat/completions`, init as RequestInit);
}

/** A connection on which a test writes requests byte by byte and collects all that comes back. */
async function open(t: Test, server: FrontendServer) {
  const { hostname, port } = new URL(server.url);
  const socket: Socket = connect(Number(port), hostname);
  t.teardown(() => socket.destroy());
  let text = "";
  // A server that resets the connection has closed it too.
  socket.on("error", () => {});
  socket.on("data", (chunk) => {
    text += chunk.toString("latin1");
  });
  await once(socket, "connect");
  return { socket, text: () => text };
}

async function until(what: string, isTrue: () => boolean): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!isTrue()) {
    if (Date.now() > deadline) throw new Error(`not in 10 s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const rawPost = (body: string, more = ""): string =>
  `POST /v1/completions HTTP/1.1\r\nhost: x\r\n${more}content-length: ${body.length}\r\n\r\n${body}`;

const echo: Generate = (request, sink) => {
  const answer = { route: request.route, bytes: request.body.length, tenant: request.tenant };
  sink.whole(200, json, JSON.stringify(answer));
};

t.test("a request reaches the frontend as bytes, and the answer carries its id", async (t) => {
  const seen: ClientRequest[] = [];
  const { server } = await serve(t, (request, sink) => {
    seen.push(request);
    sink.whole(201, { ...json, "x-more": "1" }, Buffer.from('{"ü":1}'));
  });
  const body = '{"not": json at all \u00fc';
  const answer = await post(server, body, { ...json, "x-session-id": "s", "x-request-id": "mine" });
  t.same([answer.status, await answer.text()], [201, '{"ü":1}']);
  t.match(Object.fromEntries(answer.headers), {
    "content-length": "8",
    "x-request-id": "r-1",
    "x-more": "1",
    "keep-alive": "timeout=75",
  });
  t.equal(Buffer.from(seen[0]!.body).toString(), body);
  t.match(seen[0], {
    requestId: "r-1",
    route: "chat",
    tenant: null,
    headers: { "x-session-id": "s" },
  });
  const untyped = await open(t, server);
  untyped.socket.write(rawPost("{}"));
  await until("answer without a content type", () => untyped.text().includes('{"'));
  t.match(untyped.text(), /^HTTP\/1\.1 201 /);
  t.equal(seen[1]?.route, "completions");

  const trusting = await serve(t, echo, { trustRequestIdHeader: true });
  const given = await post(trusting.server, "{}", { ...json, "x-request-id": "gw-7" });
  t.equal(given.headers.get("x-request-id"), "gw-7");
  const odd = await post(trusting.server, "{}", { ...json, "x-request-id": "a b" });
  t.equal(odd.headers.get("x-request-id"), "r-1");
});

t.test(
  "the other routes answer, and what is no route is told apart from a wrong method",
  async (t) => {
    const { server } = await serve(t, echo);
    const get = async (path: string, method = "GET") => {
      const answer = await fetch(server.url + path, { method });
      t.ok(answer.headers.get("x-request-id"), path);
      return {
        status: answer.status,
        allow: answer.headers.get("allow"),
        text: await answer.text(),
      };
    };
    t.match(await get("/v1/models"), { status: 200, text: /"id":"m"/ });
    t.match(await get("/health"), { status: 200, text: '{"ok":true}' });
    t.match(await get("/ready"), { status: 503, text: '{"missing":["decode"]}' });
    t.match(await get("/metrics"), { status: 200, text: "baton_up 1\n" });
    t.match(await get("/debug/decisions?request_id=r-9&limit=5"), {
      text: '{"requestId":"r-9","limit":5}',
    });
    t.match(await get("/debug/decisions"), { text: '{"requestId":null,"limit":20}' });
    for (const limit of ["0", "1e9", "x", "1.5"]) {
      t.match(await get(`/debug/decisions?limit=${limit}`), {
        status: 400,
        text: /BATON_BAD_REQUEST/,
      });
    }
    t.match(await get("/v1/nothing"), { status: 404, allow: null, text: /BATON_UNKNOWN_ROUTE/ });
    t.match(await get("/v1/completions"), {
      status: 405,
      allow: "POST",
      text: /BATON_METHOD_NOT_ALLOWED/,
    });
    t.match(await get("/v1/models", "DELETE"), { status: 405, allow: "GET" });
    t.match(await get("/%"), { status: 400, text: /BATON_BAD_REQUEST/ });
  },
);

t.test("keys are asked for everywhere but on the probes, and name the tenant", async (t) => {
  const apiKeys = new Map([[sha256("sk-right"), "team-a"]]);
  const { server } = await serve(t, echo, { apiKeys });
  const withKey = (authorization: string) => post(server, "{}", { ...json, authorization });
  t.match(await (await withKey("Bearer sk-right")).json(), { tenant: "team-a" });
  for (const wrong of ["Bearer sk-wrong", "sk-right", "Bearer ", `Bearer ${sha256("sk-right")}`]) {
    const answer = await withKey(wrong);
    t.equal(answer.status, 401, wrong);
    t.equal(answer.headers.get("www-authenticate"), "Bearer");
    t.match(await answer.json(), {
      error: { type: "authentication_error", code: "BATON_UNAUTHORIZED" },
    });
  }
  for (const path of ["/v1/models", "/metrics", "/debug/decisions"]) {
    t.equal((await fetch(server.url + path)).status, 401, path);
  }
  t.equal((await fetch(`${server.url}/health`)).status, 200);
  t.equal((await fetch(`${server.url}/ready?x=1`)).status, 503);
});

t.test("bodies pass up to the limit, with and without a length, and not above it", async (t) => {
  const { server } = await serve(t, echo);
  const streamed = (size: number) =>
    new ReadableStream({
      start(controller) {
        for (let left = size; left > 0; left -= 65_536)
          controller.enqueue(new Uint8Array(Math.min(left, 65_536)));
        controller.close();
      },
    });
  for (const size of [0.9, 1.1, 31]) {
    const count = Math.floor(size * mebibyte);
    t.match(await (await post(server, new Uint8Array(count))).json(), { bytes: count });
    t.match(await (await post(server, streamed(count))).json(), { bytes: count });
  }
  for (const body of [new Uint8Array(33 * mebibyte), streamed(33 * mebibyte)]) {
    const answer = await post(server, body);
    t.equal(answer.status, 413);
    t.match(await answer.json(), {
      error: { code: "BATON_BODY_TOO_LARGE", message: /the limit is 33554432 bytes/ },
    });
  }
  const expecting = httpRequest(`${server.url}/v1/completions`, {
    method: "POST",
    headers: { expect: "100-continue", "content-length": "2" },
  });
  expecting.flushHeaders();
  await once(expecting, "continue");
  expecting.end("{}");
  const [response] = await once(expecting, "response");
  t.equal(response.statusCode, 200);
  response.resume();
});

t.test("the memory for all bodies together has a limit, and is given back", async (t) => {
  const sinks: ResponseSink[] = [];
  const { server } = await serve(t, (_request, sink) => sinks.push(sink), {
    bodiesBytesMax: 3 * mebibyte,
  });
  const two = new Uint8Array(2 * mebibyte);
  const first = post(server, two);
  await until("first request", () => sinks.length === 1);
  const second = await post(server, two);
  t.equal(second.status, 429);
  t.match(await second.json(), { error: { code: "BATON_SATURATED", type: "rate_limit_error" } });
  sinks[0]!.whole(200, json, "{}");
  t.equal((await first).status, 200);
  const third = post(server, two);
  await until("third request", () => sinks.length === 2);
  sinks[1]!.whole(200, json, "{}");
  t.equal((await third).status, 200);
});

t.test("what is not plain JSON, or not HTTP, is refused in JSON", async (t) => {
  const { server } = await serve(t, echo);
  for (const headers of [
    { "content-type": "text/plain" },
    { "content-type": "" },
    { ...json, "content-encoding": "gzip" },
  ]) {
    const answer = await post(server, "{}", headers);
    t.equal(answer.status, 400, JSON.stringify(headers));
    t.match(await answer.json(), { error: { code: "BATON_BAD_REQUEST" } });
  }
  t.equal(
    (await post(server, "{}", { "content-type": "application/json; charset=utf-8" })).status,
    200,
  );
  const { socket, text } = await open(t, server);
  socket.write("NOT HTTP\r\n\r\n");
  await once(socket, "close");
  t.match(text(), /^HTTP\/1\.1 400 Bad Request\r\n[\s\S]*"code":"BATON_BAD_REQUEST"/);
});

t.test("the official client streams, aborts, and raises its typed errors", async (t) => {
  let closed = 0;
  const { server } = await serve(
    t,
    (request, sink) => {
      const { model, stream } = JSON.parse(Buffer.from(request.body).toString());
      if (model === "gone")
        return sink.error(batonError("BATON_UNKNOWN_MODEL", "No such model.", { param: "model" }));
      if (model === "busy")
        return sink.error(batonError("BATON_SATURATED", "Full.", { retryAfterS: 7 }));
      if (model === "down") return sink.error(batonError("BATON_ENGINE_FAILED", "It failed."));
      if (!stream) return sink.whole(200, json, '{"choices":[{"message":{"content":"whole"}}]}');
      sink.onClose(() => closed++);
      sink.head(200, sse);
      const event = (content: string) =>
        `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`;
      sink.write(bytes(`: ping\n\n${event("a")}${event("ü")}`));
      if (model === "endless") return;
      if (model === "broken")
        sink.write(bytes('data: {"error":{"message":"cut","code":"BATON_STREAM_BROKEN"}}\n\n'));
      else sink.write(bytes("data: [DONE]\n\n"));
      sink.end();
    },
    { apiKeys: new Map([[sha256("sk-1"), "a"]]) },
  );
  const client = new OpenAI({ apiKey: "sk-1", baseURL: `${server.url}/v1`, maxRetries: 0 });
  const messages = [{ role: "user" as const, content: "Hi" }];
  const create = (model: string) => client.chat.completions.create({ model, messages });
  const stream = (model: string) =>
    client.chat.completions.create({ model, messages, stream: true });
  const rejected = (promise: Promise<unknown>) =>
    promise.then(
      () => t.fail("no error"),
      (error) => error,
    );

  t.equal((await create("m")).choices[0]?.message.content, "whole");
  const parts: (string | null | undefined)[] = [];
  for await (const chunk of await stream("m")) parts.push(chunk.choices[0]?.delta.content);
  t.same(parts, ["a", "ü"]);
  t.equal((await client.models.list()).data[0]?.id, "m");

  const notFound = await rejected(create("gone"));
  t.ok(notFound instanceof OpenAI.NotFoundError);
  t.match(notFound, {
    status: 404,
    code: "BATON_UNKNOWN_MODEL",
    param: "model",
    type: "not_found_error",
  });
  const busy = await rejected(create("busy"));
  t.ok(busy instanceof OpenAI.RateLimitError);
  t.equal(busy.headers.get("retry-after"), "7");
  t.ok((await rejected(create("down"))) instanceof OpenAI.InternalServerError);
  const stranger = client.withOptions({ apiKey: "sk-2" });
  const denied = await rejected(stranger.models.list());
  t.ok(denied instanceof OpenAI.AuthenticationError);
  const broken = async () => {
    for await (const _chunk of await stream("broken"));
  };
  t.match(await rejected(broken()), { message: /cut/, code: "BATON_STREAM_BROKEN" });

  t.equal(closed, 0, "streams that ended are not closed by the client");
  const endless = await stream("endless");
  for await (const _chunk of endless) break;
  await until("the abort reaches the frontend", () => closed === 1);
});

t.test("a client that leaves is reported once, and not after the end", async (t) => {
  const closes: string[] = [];
  const sinks = new Map<string, ResponseSink>();
  const { server } = await serve(t, (request, sink) => {
    const name = Buffer.from(request.body).toString();
    sinks.set(name, sink);
    sink.onClose(() => closes.push(name));
  });
  const start = async (name: string) => {
    const { socket, text } = await open(t, server);
    socket.write(rawPost(name));
    await until(name, () => sinks.has(name));
    return { socket, sink: sinks.get(name)!, text };
  };
  const waiting = await start("waiting");
  waiting.socket.destroy();
  await until("closed while waiting", () => closes.includes("waiting"));
  // A frontend that has not noticed yet does no harm.
  waiting.sink.head(200, sse);
  t.equal(waiting.sink.write(bytes("x")), true);
  waiting.sink.end();

  const streaming = await start("streaming");
  streaming.sink.head(200, sse);
  streaming.sink.write(bytes("x"));
  await until("first bytes", () => streaming.text().endsWith("\r\n1\r\nx\r\n"));
  streaming.socket.resetAndDestroy();
  await until("closed while streaming", () => closes.includes("streaming"));

  const ended = await start("ended");
  ended.sink.whole(200, json, "{}");
  await until("whole answer", () => ended.text().endsWith("{}"));
  ended.socket.destroy();

  const broken = await start("broken");
  broken.sink.head(200, sse);
  broken.sink.write(bytes("data: 1\n\n"));
  broken.sink.destroy();
  await once(broken.socket, "close");
  t.notMatch(broken.text(), /0\r\n\r\n$/, "a broken stream has no proper end");

  const uploading = await open(t, server);
  uploading.socket.write("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n12");
  uploading.socket.destroy();
  await server.close(5_000);
  t.same(closes, ["waiting", "streaming"]);
  t.notOk(sinks.has("12"));
});

t.test("requests sent ahead on one connection are answered in order", async (t) => {
  const sinks: ResponseSink[] = [];
  const { server } = await serve(t, (_request, sink) => sinks.push(sink));
  const { socket, text } = await open(t, server);
  socket.write(rawPost("1") + rawPost("2") + rawPost("3"));
  await until("three requests", () => sinks.length === 3);
  const [first, second, third] = sinks as [ResponseSink, ResponseSink, ResponseSink];
  third.whole(200, json, "three");
  second.head(200, sse);
  second.write(bytes("two"));
  first.head(200, sse);
  first.write(bytes("one"));
  first.end();
  await until("the second has the connection", () => text().includes("two"));
  second.write(bytes("and more"));
  second.end();
  await until("all three", () => text().includes("three"));
  const bodies = text().split(/HTTP\/1\.1 200 OK\r\n[\s\S]*?\r\n\r\n/);
  t.same(bodies, ["", "3\r\none\r\n0\r\n\r\n", "3\r\ntwo\r\n8\r\nand more\r\n0\r\n\r\n", "three"]);
  socket.write(rawPost("4") + rawPost("5"));
  await until("the connection stays open", () => sinks.length === 5);
  const closes: number[] = [];
  for (const index of [3, 4]) sinks[index]!.onClose(() => closes.push(index));
  socket.destroy();
  await until("both are told that the client left", () => closes.length === 2);
});

t.test("clients of HTTP/1.0 get a stream that ends with the connection", async (t) => {
  const { server } = await serve(t, (_request, sink) => {
    sink.head(200, sse);
    sink.write(bytes("data: [DONE]\n\n"));
    sink.end();
  });
  const { socket, text } = await open(t, server);
  socket.write("POST /v1/completions HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}");
  await once(socket, "close");
  t.match(text(), /\r\n\r\ndata: \[DONE\]\n\n$/);
  t.notMatch(text(), /transfer-encoding/i);
});

t.test("a sink says when it is full and when it has room, and nothing is lost", async (t) => {
  const total = 20 * mebibyte;
  const block = Buffer.alloc(65_536, "x");
  let waits = 0;
  const { server } = await serve(t, (_request, sink) => {
    let sent = 0;
    const pump = (): void => {
      while (sent < total) {
        sent += block.length;
        if (!sink.write(block)) {
          waits++;
          return;
        }
      }
      sink.end();
    };
    sink.onDrain(pump);
    sink.head(200, sse);
    pump();
  });
  const answer = await post(server, "{}");
  t.equal((await answer.arrayBuffer()).byteLength, total);
  t.ok(waits > 0);
});

t.test("a client that does not read is cut off with a reason", async (t) => {
  const closed: string[] = [];
  const block = Buffer.alloc(65_536, "x");
  const { server, logger } = await serve(
    t,
    (request, sink) => {
      const name = Buffer.from(request.body).toString();
      sink.onClose(() => closed.push(name));
      if (name === "whole") return sink.whole(200, json, Buffer.alloc(64 * mebibyte));
      sink.head(200, sse);
      const pump = (): void => {
        if (closed.includes(name)) return;
        const isRoomLeft = sink.write(block);
        if (isRoomLeft || name === "greedy") setImmediate(pump);
      };
      sink.onDrain(pump);
      pump();
    },
    { sinkBufferBytesMax: mebibyte, sinkStallMsMax: 200 },
  );
  for (const [index, name] of ["greedy", "polite", "whole"].entries()) {
    const { socket } = await open(t, server);
    socket.pause();
    socket.write(rawPost(name));
    await until(`${name} is cut off`, () => logger.lines.length > index);
  }
  t.match(logger.lines, [
    {
      message: "answer cut off",
      fields: { requestId: "r-1", reason: "the client reads too slowly" },
    },
    { message: "answer cut off", fields: { requestId: "r-2", reason: "the client does not read" } },
    { message: "answer cut off", fields: { requestId: "r-3", reason: "the client does not read" } },
  ]);
  await until("both streams are reported", () => closed.length === 2);
  t.same(closed, ["greedy", "polite"]);
});

t.test("closing lets running answers end, refuses new ones, and then cuts", async (t) => {
  const sinks = new Map<string, ResponseSink>();
  let closes = 0;
  const { server } = await serve(t, (request, sink) => {
    sinks.set(Buffer.from(request.body).toString(), sink);
    sink.onClose(() => closes++);
  });
  const whole = post(server, "whole");
  const staying = await open(t, server);
  staying.socket.write(rawPost("stream"));
  await until("two requests", () => sinks.size === 2);
  const idle = await open(t, server);
  const early = await open(t, server);
  idle.socket.write("GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
  await until("an idle connection", () => idle.text().includes("{"));
  const closing = server.close(60_000);
  await once(idle.socket, "close");
  early.socket.write(rawPost("late"));
  await once(early.socket, "close");
  t.match(early.text(), /^HTTP\/1\.1 503 [\s\S]*"code":"BATON_DRAINING"/);
  await t.rejects(fetch(`${server.url}/health`));
  sinks.get("whole")!.whole(200, json, '"ended"');
  const answer = await whole;
  t.equal(answer.headers.get("connection"), "close");
  t.match(await answer.text(), "ended");
  sinks.get("stream")!.head(200, sse);
  sinks.get("stream")!.end();
  await once(staying.socket, "close");
  await closing;
  await server.close(0);
  t.equal(closes, 0);

  const second = await serve(t, (_request, sink) => {
    sink.onClose(() => closes++);
    sink.head(200, sse);
    sink.write(bytes("x"));
  });
  const stuck = await open(t, second.server);
  stuck.socket.write(rawPost("{}"));
  await until("stream", () => stuck.text().includes("\r\nx\r\n"));
  await Promise.all([second.server.close(20), once(stuck.socket, "close")]);
  t.equal(closes, 1);
});

t.test("a taken port and a host that is not here are error values", async (t) => {
  const taken = createServer().listen(0, "127.0.0.1");
  t.teardown(() => taken.close());
  await once(taken, "listening");
  const { port } = taken.address() as { port: number };
  const { server } = await serve(t, echo);
  const base = {
    api: {} as FrontendApi,
    apiKeys: null,
    metricsText: async () => "",
    logger: new MemoryLogger(),
    requestId: () => "r",
  };
  const inUse = await serveFrontend({ ...base, host: "127.0.0.1", port });
  t.match(inUse, {
    ok: false,
    error: { code: "BATON_PORT_IN_USE", message: new RegExp(String(port)) },
  });
  const elsewhere = await serveFrontend({ ...base, host: "192.0.2.1", port: 0 });
  t.match(elsewhere, { ok: false, error: { code: "BATON_CONFIG_INVALID" } });
  t.match(server.url, /^http:\/\/127\.0\.0\.1:\d+$/);
});

t.test("a failing part ends one request with a line in the log", async (t) => {
  const { server, logger } = await serve(t, echo, {
    metricsText: async () => {
      throw new Error("registry broken");
    },
  });
  const answer = await fetch(`${server.url}/metrics`);
  t.equal(answer.status, 500);
  t.match(await answer.json(), { error: { code: "BATON_INTERNAL", type: "server_error" } });
  t.match(logger.lines, [{ level: "error", fields: { stack: /registry broken/ } }]);
});
