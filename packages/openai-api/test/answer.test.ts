import assert from "node:assert/strict";
import { type BatonError, batonError, type ErrorCode, errorCatalogue } from "@baton/domain";
import {
  errorBody,
  forwardHeaders,
  modelsBody,
  readUsage,
  relayHeaders,
  SseScanner,
  sseErrorEvent,
  UsageReader,
} from "@baton/openai-api";
import fc from "fast-check";
import t from "tap";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);

// Shortened from a stream of vLLM 0.32.0 (2026-11-30).
const stream = [
  'data: {"id":"chatcmpl-b","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}',
  'data: {"id":"chatcmpl-b","choices":[{"index":0,"delta":{"content":"data: [DONE] \\"usage\\":{\\"prompt_tokens\\":1}"}}],"usage":null}',
  'data: {"id":"chatcmpl-b","choices":[{"index":0,"delta":{"content":" fabulous"},"finish_reason":"length"}]}',
  'data: {"id":"chatcmpl-b","choices":[],"usage":{"prompt_tokens":70,"total_tokens":74,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":64,"created_cache_tokens":0}},"system_fingerprint":"vllm-0.32.0"}',
  "data: [DONE]",
];
const wire = encode(stream.map((event) => `${event}\n\n`).join(""));
const usage = { promptTokens: 70, completionTokens: 4, cachedTokens: 64 };

/** Bytes cut at `cuts`, given as shares of the whole. */
function cutAt(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const at = [0, ...cuts.map((cut) => Math.floor(cut * bytes.length)), bytes.length].sort(
    (a, b) => a - b,
  );
  return at.slice(1).map((end, index) => bytes.subarray(at[index], end));
}

const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 12 });

t.test("the end of a stream is seen wherever the chunks are cut, and never early", async () => {
  fc.assert(
    fc.property(cuts, fc.constantFrom("\n", "\r\n"), (where, lineEnd) => {
      const bytes = encode(
        stream.map((event) => `${event}\n\n`.replaceAll("\n", lineEnd)).join(""),
      );
      const scanner = new SseScanner();
      let sent = 0;
      for (const chunk of cutAt(bytes, where)) {
        scanner.push(chunk);
        sent += chunk.length;
        assert.equal(scanner.isDone, sent === bytes.length);
      }
      assert.equal(scanner.isMidEvent, false);
      assert.equal(scanner.events, stream.length);
    }),
  );
  for (let end = 0; end <= wire.length; end++) {
    const scanner = new SseScanner();
    scanner.push(wire.subarray(0, end));
    const text = new TextDecoder().decode(wire.subarray(0, end));
    assert.equal(scanner.isMidEvent, !(text === "" || text.endsWith("\n\n")), `cut at ${end}`);
  }
});

t.test("comments, other spellings and near misses of the last event", async (t) => {
  const doneAfter = (text: string) => {
    const scanner = new SseScanner();
    scanner.push(encode(text));
    return [scanner.isDone, scanner.isMidEvent, scanner.events];
  };
  t.same(doneAfter("data:[DONE]\n\n"), [true, false, 1]);
  t.same(doneAfter("data: [DONE]\n\n: bye\n\n"), [true, false, 1]);
  t.same(doneAfter(": ping\n\n"), [false, false, 0]);
  t.same(doneAfter("data: [DONE]\n"), [false, true, 0]);
  t.same(doneAfter("data: [DONE]x\n\n"), [false, false, 1]);
  t.same(doneAfter("data: [DONE]xxxxxxxxxxxx\n\n"), [false, false, 1]);
  t.same(doneAfter("id: 1\ndata: [DONE]\n\n"), [true, false, 1]);
});

t.test("the last usage of a stream is read from its tail, however it was cut", async (t) => {
  fc.assert(
    fc.property(cuts, fc.nat(20_000), (where, paddingBytes) => {
      const reader = new UsageReader();
      reader.push(encode(`data: ${"x".repeat(paddingBytes)}\n\n`));
      for (const chunk of cutAt(wire, where)) reader.push(chunk);
      assert.deepEqual(reader.read(), usage);
    }),
  );
  const read = (text: string) => {
    const reader = new UsageReader();
    reader.push(encode(text));
    return reader.read();
  };
  t.equal(read('data: {"usage":null}\n\ndata: {"content":"\\"usage\\":{}"}\n\n'), null);
  t.same(read('data: {"usage": {"prompt_tokens":1}}\n\ndata: {"usage":null}\n\ndata: [DONE]\n\n'), {
    promptTokens: 1,
    completionTokens: null,
    cachedTokens: null,
  });
  t.equal(read('data: {"usage":{"prompt_tokens":1'), null, "cut off");
  t.same(readUsage(encode('{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}')), {
    promptTokens: 1,
    completionTokens: null,
    cachedTokens: 0,
  });
  t.equal(readUsage(encode("null")), null);
});

t.test(
  "every error of the catalogue has an HTTP form that OpenAI's clients understand",
  async (t) => {
    for (const code of Object.keys(errorCatalogue) as ErrorCode[]) {
      const answer = errorBody(batonError(code, "text", { cause: "inner" }));
      t.ok(answer.status >= 400 && answer.status < 600, code);
      t.same(answer.body.error.code, code);
      t.notMatch(JSON.stringify(answer), /inner/);
    }
    const typed = (code: ErrorCode, more: Partial<BatonError> = {}) => {
      const { status, headers, body } = errorBody(batonError(code, "text", more));
      return [status, body.error.type, headers["retry-after"] ?? null, body.error.param];
    };
    t.same(typed("BATON_BAD_REQUEST", { param: "n" }), [400, "invalid_request_error", null, "n"]);
    t.same(typed("BATON_UNAUTHORIZED"), [401, "authentication_error", null, null]);
    t.same(typed("BATON_UNKNOWN_MODEL"), [404, "not_found_error", null, null]);
    t.same(typed("BATON_METHOD_NOT_ALLOWED"), [405, "invalid_request_error", null, null]);
    t.same(typed("BATON_BODY_TOO_LARGE"), [413, "invalid_request_error", null, null]);
    t.same(typed("BATON_SATURATED", { retryAfterS: 2.1 }), [429, "rate_limit_error", "3", null]);
    t.same(typed("BATON_NO_DECODE_WORKER"), [503, "server_error", "1", null]);
    t.same(typed("BATON_DEADLINE"), [504, "server_error", null, null]);
    t.same(typed("BATON_ENGINE_REJECTED"), [400, "invalid_request_error", null, null]);
    const event = new TextDecoder().decode(
      sseErrorEvent(batonError("BATON_STREAM_BROKEN", "a\nb")),
    );
    t.match(event, /^data: \{"error":\{"message":"a\\nb".*\}\n\n$/);
  },
);

t.test("only named headers pass, in either direction", async (t) => {
  const stayBehind = {
    host: "h",
    authorization: "Bearer secret",
    cookie: "c",
    connection: "close",
    "content-length": "9",
    "x-request-id": "mine",
    "x-data-parallel-rank": "1",
    "x-override-rid": "r",
    "x-vllm-priority": "0",
    "x-prefiller-host-port": "evil:1",
    "accept-encoding": "gzip",
    "transfer-encoding": "chunked",
  };
  const pass = {
    accept: "text/event-stream",
    traceparent: "00-1-2-01",
    tracestate: "a=b",
    "x-session-id": "s",
  };
  t.same(forwardHeaders({ ...stayBehind, ...pass, "content-type": "text/plain" }), {
    ...pass,
    "content-type": "application/json",
  });
  t.same(
    relayHeaders({
      ...stayBehind,
      server: "uvicorn",
      "content-type": "text/event-stream",
      "retry-after": "1",
    }),
    { "content-type": "text/event-stream", "retry-after": "1" },
  );
});

t.test("the model list has OpenAI's form and says nothing it does not know", async (t) => {
  const base = { id: "m", createdS: 5, maxModelTokens: 8_192, parent: null };
  t.same(modelsBody([base, { ...base, id: "l", maxModelTokens: null, parent: "m" }]), {
    object: "list",
    data: [
      {
        id: "m",
        object: "model",
        created: 5,
        owned_by: "baton",
        root: "m",
        parent: null,
        max_model_len: 8_192,
      },
      { id: "l", object: "model", created: 5, owned_by: "baton", root: "l", parent: "m" },
    ],
  });
});
