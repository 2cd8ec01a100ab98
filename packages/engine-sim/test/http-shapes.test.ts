import { readFileSync } from "node:fs";
import t from "tap";
import { type Answer, prompt, startSim } from "./sim-under-test.ts";

interface Exchange {
  readonly name: string;
  readonly request: {
    readonly method: string;
    readonly path: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly body: Record<string, unknown> | string | null;
  };
  readonly response: {
    readonly status: number;
    readonly headers: readonly (readonly [string, string])[];
    readonly text: string;
  };
}

const folder = new URL("vectors/vllm-http/", import.meta.url);
const exchanges: Exchange[] = JSON.parse(readFileSync(new URL("exchanges.json", folder), "utf8"));

/** Keys in order and the kind of each value; numbers in lists count as one. */
function shape(value: unknown): unknown {
  if (Array.isArray(value)) {
    const kinds = value.map(shape);
    return kinds.every((kind) => kind === "number") ? ["number"] : kinds;
  }
  if (typeof value !== "object" || value === null) return value === null ? "null" : typeof value;
  return Object.entries(value).map(([key, inner]) => [key, shape(inner)]);
}

function events(stream: string): string[] {
  return stream.split("\n\n").slice(0, -1);
}

function eventShape(event: string): unknown {
  const data = event.slice("data: ".length);
  return event.startsWith("data: {") ? shape(JSON.parse(data)) : event;
}

/** The prompt of one vector is given by its length; a handle is replaced by the last one given. */
function bodyOf({ request }: Exchange, handle: unknown): string {
  const { body } = request;
  if (body === null || typeof body === "string") return body ?? "";
  const params = body["kv_transfer_params"] as { do_remote_prefill?: boolean } | undefined;
  if (params?.do_remote_prefill === true) {
    return JSON.stringify({ ...body, kv_transfer_params: handle });
  }
  const { length } = (body["prompt"] ?? {}) as { length?: number };
  const isLength = typeof body["prompt"] === "object" && !Array.isArray(body["prompt"]);
  return JSON.stringify(isLength ? { ...body, prompt: prompt(1, length!) } : body);
}

const exact = new Set([
  "err-bad-json",
  "err-empty-salt",
  "err-max-tokens-over",
  "err-min-gt-max",
  "err-missing-prompt",
  "err-token-oov",
  "err-too-long",
  "err-unknown-model",
  "err-wrong-content-type",
  "get-health",
  "get-ping",
  "get-version",
  "get-not_found",
  "get-load",
  "tokenize-chat-v1path",
  "reset_prefix_cache",
  "chat-render",
  "completions-render",
]);

t.test("answers have the recorded engine's status, headers, keys, order and kinds", async (t) => {
  const argv = ["--model", "tiny", "--block-size", "32", "--max-model-len", "8192"];
  const sim = await startSim(t, ...argv, "--speed", "1000", "--topic", "kv@w0@tiny");
  const decode = await startSim(t, ...argv, "--speed", "1000", "--no-kv-events");
  let handle: unknown = null;
  for (const exchange of exchanges) {
    const { method, path, headers } = exchange.request;
    const target = exchange.name.endsWith("leg2 decode") ? decode : sim;
    const answer =
      method === "GET"
        ? await sim.get(path)
        : await target.post(path, bodyOf(exchange, handle), headers);
    handle = answer.json?.kv_transfer_params ?? handle;
    t.test(exchange.name, (t) => {
      const { status, text, headers: recorded } = exchange.response;
      t.equal(answer.status, status);
      for (const [name, value] of recorded) t.equal(answer.headers.get(name), value, name);
      if (exact.has(exchange.name)) t.equal(answer.text, text);
      else if (text.startsWith("data: ")) {
        t.same(events(answer.text).map(eventShape), events(text).map(eventShape));
        t.ok(answer.text.endsWith("data: [DONE]\n\n"));
      } else t.same(shape(answer.json), shape(JSON.parse(text)));
      t.end();
    });
  }
});

t.test("ids follow X-Request-Id, and the handle's id is the engine's own", async (t) => {
  const sim = await startSim(t, "--speed", "1000", "--no-kv-events");
  const ask = (path: string, body: object): Promise<Answer> =>
    sim.post(
      path,
      { max_tokens: 1, kv_transfer_params: { do_remote_decode: true }, ...body },
      {
        "x-request-id": "req-1",
      },
    );
  const completion = await ask("/v1/completions", { prompt: "a b c" });
  t.equal(completion.json.id, "cmpl-req-1");
  t.match(completion.json.kv_transfer_params.remote_request_id, /^cmpl-req-1-0-[0-9a-f]{8}$/);
  const chat = await ask("/v1/chat/completions", { messages: [{ role: "user", content: "a" }] });
  t.equal(chat.json.id, "chatcmpl-req-1");
  t.match(chat.json.kv_transfer_params.remote_request_id, /^chatcmpl-req-1-[0-9a-f]{8}$/);
  const quoted = await sim.post("/v1/completions", { prompt: "a" }, { "x-request-id": 'a"b' });
  t.match(quoted.json.id, /^cmpl-[0-9a-f]{16}$/);
});

t.test("every kind of prompt, several choices and limits give the right counts", async (t) => {
  const sim = await startSim(t, "--speed", "1000", "--no-kv-events", "--max-model-len", "100");
  const many = await sim.post("/v1/completions", { prompt: ["a b", "c"], n: 2, max_tokens: 3 });
  t.equal(many.json.choices.length, 4);
  t.same(
    many.json.choices.map((choice: { index: number }) => choice.index),
    [0, 1, 2, 3],
  );
  t.equal(many.json.usage.prompt_tokens, 3);
  t.equal(many.json.usage.completion_tokens, 12);
  const defaults = await sim.post("/v1/completions", { prompt: [1, 2, 3] });
  t.equal(defaults.json.usage.completion_tokens, 16);
  const cut = await sim.post("/v1/completions", { prompt: prompt(1, 95), max_tokens: 50 });
  t.equal(cut.json.usage.completion_tokens, 5);
  const options = { prompt: [1], stream_options: { include_usage: true } };
  const refused = await sim.post("/v1/completions", options);
  t.equal(refused.status, 400);
  t.equal(refused.json.error.param, "stream_options");
  t.equal((await sim.post("/v1/chat/completions", {})).status, 400);
  t.equal((await sim.post("/v1/completions", { prompt: [[1], ["x"]] })).status, 400);
  t.equal((await sim.get("/v1/completions")).status, 405);
  const plain = await startSim(
    t,
    "--no-kv-events",
    "--no-prompt-tokens-details",
    "--speed",
    "1000",
  );
  const answer = await plain.post("/v1/completions", { prompt: [1], max_tokens: 1 });
  t.equal(answer.json.usage.prompt_tokens_details, null);
  const natural = await plain.post("/v1/chat/completions", {
    messages: [{ role: "user", content: [{ type: "text", text: "hello" }] }],
  });
  t.equal(natural.json.choices[0].finish_reason, "stop");
});

t.test("the tokenizer gives an answer that comes back the ids it was generated with", async (t) => {
  const sim = await startSim(t, "--speed", "1000", "--no-kv-events");
  const first = { role: "user", content: "What is a KV cache, and who needs 1234 of them?" };
  const answer = await sim.post("/v1/chat/completions", {
    messages: [first],
    max_tokens: 40,
    return_token_ids: true,
  });
  const [choice] = answer.json.choices;
  const tokens = await sim.post("/tokenize", { prompt: choice.message.content });
  t.same(tokens.json.tokens, choice.token_ids);
  const turns = [first, choice.message, { role: "user", content: "Go on." }];
  const second = await sim.post("/v1/chat/completions", { messages: turns, max_tokens: 1 });
  const shared = answer.json.usage.total_tokens - 1;
  const { cached_tokens: cached } = second.json.usage.prompt_tokens_details;
  t.equal(cached, Math.floor(shared / 16) * 16);
  const rendered = await sim.post("/tokenize", { messages: [first], return_token_strs: true });
  t.same(rendered.json.tokens, answer.json.prompt_token_ids);
  t.ok(rendered.json.token_strs.includes(" KV"));
});

t.test("metrics carry only recorded series, and all that a router needs", async (t) => {
  const sim = await startSim(t, "--no-kv-events", "--speed", "1000");
  await sim.post("/v1/completions", { prompt: prompt(1, 50), max_tokens: 4 });
  const page = (await sim.get("/metrics")).text;
  const recorded = new Set(readFileSync(new URL("metric-series.txt", folder), "utf8").split("\n"));
  const keptValues = /^(le|source|reason|finished_reason|sleep_state)=/;
  const values = new Map<string, number>();
  for (const line of page.split("\n")) {
    const match = /^([\w:]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (match === null) continue;
    const labels = [...(match[2] ?? "").matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => {
      const pair = `${name}=${value}`;
      return keptValues.test(pair) ? pair : name;
    });
    values.set(`${match[1]}{${labels.join(",")}}`, Number(match[3]));
  }
  for (const series of values.keys()) {
    if (!series.startsWith("vllm:cache_config_info")) t.ok(recorded.has(series), series);
  }
  const plain = "{engine,model_name}";
  const expected = new Map([
    [`vllm:num_requests_running${plain}`, 0],
    [`vllm:num_requests_waiting${plain}`, 0],
    [`vllm:kv_cache_usage_perc${plain}`, 0],
    [`vllm:prefix_cache_queries_total${plain}`, 50],
    [`vllm:prefix_cache_hits_total${plain}`, 0],
    ["vllm:prompt_tokens_by_source_total{engine,model_name,source=local_compute}", 50],
    [`vllm:prompt_tokens_cached_total${plain}`, 0],
    [`vllm:generation_tokens_total${plain}`, 4],
    ["vllm:request_success_total{engine,finished_reason=length,model_name}", 1],
    [`vllm:num_preemptions_total${plain}`, 0],
    [`vllm:nixl_bytes_transferred_sum${plain}`, 0],
    [`vllm:nixl_xfer_time_seconds_count${plain}`, 0],
    [`vllm:nixl_num_kv_expired_reqs_total${plain}`, 0],
    [`vllm:nixl_num_notifications_after_expiry_total${plain}`, 0],
    [`vllm:time_to_first_token_seconds_count${plain}`, 1],
    [`vllm:inter_token_latency_seconds_count${plain}`, 3],
    [`vllm:iteration_tokens_total_sum${plain}`, 53],
  ]);
  for (const [series, value] of expected) t.equal(values.get(series), value, series);
  t.ok(values.has("process_start_time_seconds{}"));
  t.match(page, /cache_config_info\{block_size="16",.*num_gpu_blocks="19813"/);
});
