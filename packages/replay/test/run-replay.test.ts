import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import t from "tap";
import {
  buildReport,
  fetchBytes,
  isReplayOk,
  type ReplayOptions,
  type ReplayProgress,
  runReplay,
  synthesizeTokens,
  type TraceRow,
  vocabularyDefault,
} from "../src/index.ts";

interface Teardown {
  teardown(callback: () => unknown): void;
}

interface CompletionBody {
  readonly prompt: readonly number[];
  readonly max_tokens: number;
}

type Answer = (body: CompletionBody, response: ServerResponse, request: IncomingMessage) => void;

/** A server of /v1/completions in a test's hands; `bodies` are the requests in order of arrival. */
async function serve(t: Teardown, answer: Answer) {
  const bodies: CompletionBody[] = [];
  const server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = JSON.parse(Buffer.concat(chunks).toString());
      bodies.push(body);
      answer(body, response, request);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, bodies };
}

const frame = { id: "cmpl-1", object: "text_completion", created: 1, model: "m" };

function event(value: object): string {
  return `data: ${JSON.stringify({ ...frame, ...value })}\n\n`;
}

function token(index: number): string {
  return event({ choices: [{ index: 0, text: ` t${index}`, finish_reason: null }] });
}

function usage(tokens: number): string {
  return event({ choices: [], usage: { prompt_tokens: 1, completion_tokens: tokens } });
}

/** Answers as asked, each event in a write of its own. */
const wellAnswered: Answer = (body, response) => {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (let index = 0; index < body.max_tokens; index++) response.write(token(index));
  response.end(`${usage(body.max_tokens)}data: [DONE]\n\n`);
};

function expectedText(_promptIds: Uint32Array, count: number): string {
  return Array.from({ length: count }, (_, index) => ` t${index}`).join("");
}

function makeRow(index: number, more: Partial<TraceRow> = {}): TraceRow {
  const hashIds = [0, index + 1];
  const rest = { line: index + 1, timestampMs: 0, inputTokens: 600, outputTokens: 3 };
  return { ...rest, hashIds, sessionId: null, delayMs: null, ...more };
}

function makeOptions(url: string, rows: readonly TraceRow[], more: Partial<ReplayOptions> = {}) {
  return {
    url,
    rows,
    model: "tiny",
    mode: { kind: "openLoop" },
    speed: 1_000,
    seed: 1,
    vocabulary: vocabularyDefault,
    apiKey: null,
    expectedText: null,
    requestTimeoutMs: 20_000,
    onProgress: () => {},
    signal: new AbortController().signal,
    ...more,
  } as const;
}

function report(run: Awaited<ReturnType<typeof runReplay>>) {
  const more = { engines: null, idealHitRatio: null, policy: null, limit: null, seeds: {} };
  return buildReport({ run, speed: 1, ...more });
}

t.test(
  "an open loop sends every row as token ids, times its answer and checks its text",
  async (t) => {
    let authorization: string | undefined;
    const { url, bodies } = await serve(t, (body, response, request) => {
      authorization = request.headers.authorization;
      wellAnswered(body, response, request);
    });
    const rows = Array.from({ length: 40 }, (_, index) =>
      makeRow(index, { timestampMs: index * 50 }),
    );
    const progress: ReplayProgress[] = [];
    const onProgress = (state: ReplayProgress) => progress.push(state);
    const more = { expectedText, apiKey: "key", onProgress };
    const run = await runReplay(makeOptions(`${url}/`, rows, more));
    t.match(bodies[0], {
      model: "tiny",
      max_tokens: 3,
      ignore_eos: true,
      temperature: 0,
      stream: true,
      stream_options: { include_usage: true },
    });
    const wanted = rows.map((row) => [
      ...synthesizeTokens(row, { seed: 1, vocabulary: vocabularyDefault }),
    ]);
    const byText = (left: readonly number[], right: readonly number[]) =>
      `${left}` < `${right}` ? -1 : 1;
    t.same(bodies.map((body) => body.prompt).sort(byText), wanted.sort(byText));
    t.equal(authorization, "Bearer key");
    const result = report(run);
    t.ok(isReplayOk(result), JSON.stringify(result.errors));
    t.equal(result.requests, 40);
    t.equal(run.itlMs.length, 80, "two gaps of three tokens");
    t.equal(run.latenessMs.length, 40);
    for (const { ttftMs, tpotMs, e2eMs } of run.results) {
      t.ok(ttftMs! > 0 && tpotMs! >= 0 && e2eMs >= ttftMs! + 2 * tpotMs!);
    }
    t.match(progress.at(-1), { total: 40, sent: 40, done: 40, errors: 0, isOver: true });
    t.equal(progress.filter((state) => state.isOver).length, 1);
  },
);

t.test(
  "an open loop never waits for answers, and keeps the order and distance of rows",
  async (t) => {
    const waiting: (() => void)[] = [];
    const arrivedMs: number[] = [];
    const { url, bodies } = await serve(t, (body, response, request) => {
      arrivedMs.push(performance.now());
      waiting.push(() => wellAnswered(body, response, request));
      // Answers come only when every row has been sent.
      if (waiting.length === 30) for (const go of waiting) go();
    });
    const rows = Array.from({ length: 30 }, (_, index) =>
      makeRow(index, { timestampMs: 1_000 + index * 10 }),
    );
    const run = await runReplay(makeOptions(url, rows, { speed: 2 }));
    t.ok(isReplayOk(report(run)));
    t.equal(bodies.length, 30);
    // 290 ms of trace at speed 2, from the first row on: a timer never fires early.
    t.ok(arrivedMs.at(-1)! - arrivedMs[0]! > 100);
  },
);

t.test("trace time is wall time by speed", async (t) => {
  const { url } = await serve(t, (body, response, request) => {
    setTimeout(() => wellAnswered(body, response, request), 20);
  });
  const run = await runReplay(makeOptions(url, [makeRow(0)], { speed: 100 }));
  const { ttftMs, e2eMs } = run.results[0]!;
  // The server waits for 20 ms of wall time, less a rounded millisecond.
  t.ok(ttftMs! >= 1_900 && e2eMs >= ttftMs!);
  t.ok(e2eMs <= run.wallSeconds * 1_000 * 100 + 1);
});

t.test("a closed loop keeps N requests running, in order", async (t) => {
  let running = 0;
  let runningMax = 0;
  const { url, bodies } = await serve(t, (body, response, request) => {
    runningMax = Math.max(runningMax, ++running);
    setImmediate(() => {
      running--;
      wellAnswered(body, response, request);
    });
  });
  const rows = Array.from({ length: 30 }, (_, index) =>
    makeRow(index, { outputTokens: index + 1 }),
  );
  const mode = { kind: "closedLoop", concurrency: 3 } as const;
  t.ok(isReplayOk(report(await runReplay(makeOptions(url, rows, { mode })))));
  t.ok(runningMax <= 3 && runningMax >= 2, `${runningMax} at once`);
  const one = { kind: "closedLoop", concurrency: 1 } as const;
  bodies.length = 0;
  t.ok(isReplayOk(report(await runReplay(makeOptions(url, rows, { mode: one })))));
  t.same(
    bodies.map((body) => body.max_tokens),
    rows.map((row) => row.outputTokens),
  );
});

t.test("a turn of a session waits for the turn before and its delay", async (t) => {
  const events: string[] = [];
  let endedMs = 0;
  let gapMs = 0;
  const { url } = await serve(t, (body, response, request) => {
    const name = body.max_tokens;
    events.push(`begin ${name}`);
    if (name === 2) gapMs = performance.now() - endedMs;
    const wait = name === 1 ? 30 : 0;
    setTimeout(() => {
      events.push(`end ${name}`);
      endedMs = performance.now();
      wellAnswered(body, response, request);
    }, wait);
  });
  const rows = [
    makeRow(0, { outputTokens: 1, sessionId: "a" }),
    makeRow(1, { outputTokens: 2, sessionId: "a", delayMs: 40_000 }),
    makeRow(2, { outputTokens: 3, sessionId: "b" }),
  ];
  const mode = { kind: "closedLoop", concurrency: 3 } as const;
  t.ok(isReplayOk(report(await runReplay(makeOptions(url, rows, { mode })))));
  t.ok(events.indexOf("begin 3") < events.indexOf("end 1"), "other sessions do not wait");
  t.ok(events.indexOf("begin 2") > events.indexOf("end 1"));
  t.ok(gapMs >= 39, "40 s of trace at speed 1,000");
});

const sse = { "content-type": "text/event-stream" };

const failures: readonly (readonly [string, string, RegExp, Answer])[] = [
  [
    "an error object's code",
    "BATON_SATURATED",
    /^line 1: the queue is full$/,
    (_body, response) => {
      response.writeHead(429, { "content-type": "application/json" });
      response.end('{"error":{"message":"the queue is full","code":"BATON_SATURATED"}}');
    },
  ],
  [
    "another status",
    "HTTP_502",
    /<html>/,
    (_body, response) => {
      response.statusCode = 502;
      response.end("<html>");
    },
  ],
  [
    "no [DONE]",
    "STREAM_INCOMPLETE",
    /after 3 events, without \[DONE\]/,
    (_body, response) => {
      response.writeHead(200, sse);
      response.end(token(0) + token(1) + token(2) + usage(3));
    },
  ],
  [
    "a token too few by the usage",
    "TOKEN_COUNT_WRONG",
    /2 tokens, 3 asked for/,
    (_body, response) => {
      response.writeHead(200, sse);
      response.end(`${token(0)}${token(1)}${token(2)}${usage(2)}data: [DONE]\n\n`);
    },
  ],
  [
    "a token too many without usage",
    "TOKEN_COUNT_WRONG",
    /4 tokens, 3 asked for/,
    (_body, response) => {
      response.writeHead(200, sse);
      response.end(`${token(0)}${token(1)}${token(2)}${token(3)}data: [DONE]\n\n`);
    },
  ],
  [
    "another text",
    "TEXT_WRONG",
    /from character 5: " t0 t2 t1" instead of " t0 t1 t2"/,
    (_body, response) => {
      response.writeHead(200, sse);
      response.end(`${token(0)}${token(2)}${token(1)}${usage(3)}data: [DONE]\n\n`);
    },
  ],
  [
    "an error within the stream",
    "BATON_STREAM_BROKEN",
    /engine died/,
    (_body, response) => {
      response.writeHead(200, sse);
      response.write(token(0));
      response.write('data: {"error":{"message":"engine died","code":"BATON_STREAM_BROKEN"}}\n\n');
    },
  ],
  [
    "a connection lost within the stream",
    "STREAM_BROKEN",
    /./,
    (_body, response, request) => {
      response.writeHead(200, sse);
      response.write(token(0), () => request.socket.destroy());
    },
  ],
  [
    "a connection lost before the answer",
    "CONNECTION_ECONNRESET",
    /./,
    (_body, _response, request) => request.socket.destroy(),
  ],
  ["no answer in time", "TIMEOUT", /no end within 50 ms/, () => {}],
];

for (const [name, code, message, answer] of failures) {
  t.test(`${name} fails the request as ${code}`, async (t) => {
    const { url, bodies } = await serve(t, answer);
    const requestTimeoutMs = code === "TIMEOUT" ? 50 : 20_000;
    const options = makeOptions(url, [makeRow(0)], { expectedText, requestTimeoutMs });
    const run = await runReplay(options);
    const result = report(run);
    t.same(result.errors, { [code]: 1 });
    t.match(result.errorExamples[code], message);
    t.equal(isReplayOk(result), false);
    t.equal(run.itlMs.length, 0);
    t.equal(bodies.length, 1);
  });
}

t.test("a kept connection that drops a request unanswered costs no error", async (t) => {
  let requests = 0;
  const { url } = await serve(t, (body, response, request) => {
    // The second request comes on the first one's connection.
    if (++requests === 2) request.socket.destroy();
    else wellAnswered(body, response, request);
  });
  const mode = { kind: "closedLoop", concurrency: 1 } as const;
  const rows = [makeRow(0), makeRow(1)];
  t.ok(isReplayOk(report(await runReplay(makeOptions(url, rows, { mode, expectedText })))));
  t.equal(requests, 3);
});

t.test("JSON with other spacing is understood", async (t) => {
  const spaced = (text: string) => text.replaceAll('":', '": ');
  const { url } = await serve(t, (body, response) => {
    response.writeHead(200, sse);
    for (let index = 0; index < body.max_tokens; index++) response.write(spaced(token(index)));
    response.end(`${spaced(usage(body.max_tokens))}data: [DONE]\n\n`);
  });
  const run = await runReplay(makeOptions(url, [makeRow(0)], { expectedText }));
  t.ok(isReplayOk(report(run)));
  t.equal(run.itlMs.length, 2);
});

t.test("the signal stops the sending and breaks off what runs", async (t) => {
  const controller = new AbortController();
  const { url, bodies } = await serve(t, () => {
    if (bodies.length === 3) controller.abort();
  });
  // The last rows are due in an hour.
  const rows = [0, 1, 2, 3, 4].map((index) =>
    makeRow(index, { timestampMs: index < 3 ? 0 : 3_600_000 }),
  );
  const run = await runReplay(makeOptions(url, rows, { speed: 1, signal: controller.signal }));
  t.same(report(run).errors, { ABORTED: 5 });
  t.equal(bodies.length, 3);
});

t.test("fetchBytes gives the bytes of a 200 and null for all else", async (t) => {
  const bytes = Uint8Array.of(0, 255, 128, 10);
  const server = createServer((request, response) => {
    response.statusCode = request.url === "/bytes" ? 200 : 404;
    response.end(bytes);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.same(await fetchBytes(`${url}/bytes`), bytes);
  t.equal(await fetchBytes(`${url}/none`), null);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  t.equal(await fetchBytes(url), null);
});
