import assert from "node:assert/strict";
import { type GenerateRequest, type GenerateRoute, parseGenerateRequest } from "@baton/openai-api";
import fc from "fast-check";
import t from "tap";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const chat = { model: "m", messages: [{ role: "user", content: "hi" }] };
const completion = { model: "m", prompt: "hi" };

function parse(route: GenerateRoute, body: unknown): GenerateRequest {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const parsed = parseGenerateRequest(route, encode(text));
  if (!parsed.ok) throw new Error(`${parsed.error.code} ${parsed.error.message}`);
  return parsed.value;
}

function refusal(route: GenerateRoute, body: unknown): [string, string | undefined, string] {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const parsed = parseGenerateRequest(route, encode(text));
  if (parsed.ok) throw new Error(`accepted: ${text}`);
  const { code, param, message } = parsed.error;
  return [code, param, message];
}

t.test("a chat request is read with its flags, limits and sizes", async (t) => {
  const request = parse("chat", {
    ...chat,
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: 9,
    max_completion_tokens: 7,
    min_tokens: 7,
    cache_salt: "tenant-a",
    priority: -2,
    tools: [{ type: "function" }],
  });
  const { members, ...rest } = request;
  t.same(rest, {
    route: "chat",
    model: "m",
    isStream: true,
    includeUsage: true,
    promptTokenIds: null,
    promptBytes: JSON.stringify(chat.messages).length + '[{"type":"function"}]'.length,
    maxOutputTokens: 7,
    cacheSalt: "tenant-a",
    unsplittable: null,
    priority: -2,
  });
  t.equal(members.length, 10);
  t.equal(parse("chat", chat).maxOutputTokens, null);
  t.equal(parse("completions", completion).maxOutputTokens, 16);
  t.equal(parse("completions", { ...completion, echo: true, max_tokens: 0 }).maxOutputTokens, 0);
});

t.test("null reads as absent, and of equal keys the last one counts", async (t) => {
  const nulls = { n: null, stream: null, stream_options: null, max_tokens: null, cache_salt: null };
  const request = parse("chat", { ...chat, ...nulls, prompt_logprobs: null, priority: null });
  t.match(request, { isStream: false, maxOutputTokens: null, cacheSalt: null, priority: 0 });
  t.equal(request.unsplittable, null);
  const twice = parse(
    "chat",
    `{"model":"a","n":0,"m\\u006fdel":"b","n":1,"messages":[{"role":"user"}]}`,
  );
  t.equal(twice.model, "b");
});

t.test("all four forms of a prompt are told apart", async (t) => {
  const ids = parse("completions", { model: "m", prompt: [1, 0, 4294967295] });
  t.same([...ids.promptTokenIds!], [1, 0, 4294967295]);
  t.equal(ids.unsplittable, null);
  const oneList = parse("completions", { model: "m", prompt: [[7, 8]] });
  t.same([[...oneList.promptTokenIds!], oneList.unsplittable], [[7, 8], null]);
  for (const prompt of [
    ["a", "b"],
    [[1], [2, 3]],
  ]) {
    const several = parse("completions", { model: "m", prompt });
    t.same([several.promptTokenIds, several.unsplittable], [null, "several prompts"]);
  }
  t.equal(parse("completions", { model: "m", prompt: ["one"] }).unsplittable, null);
});

t.test("token ids are read as JSON.parse reads them, or refused", async () => {
  const space = fc.constantFrom("", " ", "\n");
  const number = fc.oneof(
    fc.nat({ max: 0xffff_ffff }).map(String),
    fc.constantFrom(
      "4294967295",
      "4294967296",
      "-1",
      "1.5",
      "1e2",
      "01",
      "99999999999",
      "null",
      "true",
    ),
    fc.nat(200_000).map(String),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(space, number, space), { minLength: 1 }), (parts) => {
      const text = `[${parts.map((each) => each.join("")).join(",")}]`;
      const body = encode(`{"model":"m","prompt":${text}}`);
      const parsed = parseGenerateRequest("completions", body);
      const isPlain = parts.every(
        (each) => /^(0|[1-9]\d*)$/.test(each[1]) && Number(each[1]) <= 0xffff_ffff,
      );
      assert.equal(parsed.ok, isPlain);
      if (parsed.ok) assert.deepEqual([...parsed.value.promptTokenIds!], JSON.parse(text));
    }),
    { numRuns: 500 },
  );
});

t.test("what keeps prefill and decode on one engine is named", async (t) => {
  const reason = (route: GenerateRoute, more: object) =>
    parse(route, { ...(route === "chat" ? chat : completion), ...more }).unsplittable;
  t.equal(reason("chat", { n: 2 }), "n is more than 1");
  t.equal(reason("completions", { best_of: 3 }), "best_of is more than 1");
  t.equal(reason("completions", { echo: true }), "echo");
  t.equal(reason("chat", { prompt_logprobs: 0 }), "prompt_logprobs");
  t.equal(reason("chat", { use_beam_search: true }), "use_beam_search");
  t.equal(reason("completions", { n: 1, best_of: 1, echo: false, logprobs: 3 }), null);
  t.equal(
    parse("completions", { model: "m", prompt_embeds: "eA==" }).unsplittable,
    "prompt_embeds",
  );
});

t.test("a bad request is refused with the field at fault", async (t) => {
  const cases: [GenerateRoute, unknown, string | undefined, RegExp][] = [
    ["chat", { messages: chat.messages }, "model", /^Missing required parameter: 'model'\.$/],
    ["chat", { ...chat, model: "" }, "model", /must not be empty/],
    ["chat", { ...chat, model: 7 }, "model", /expected a string, but got the number 7/],
    ["chat", { model: "m" }, "messages", /Missing/],
    ["chat", { model: "m", messages: [] }, "messages", /must not be empty/],
    [
      "chat",
      { model: "m", messages: "hi" },
      "messages",
      /expected an array of objects, but got a string/,
    ],
    ["chat", { model: "m", messages: ["hi"] }, "messages[0]", /expected an object/],
    ["chat", { model: "m", messages: [chat.messages[0], {}] }, "messages[1].role", /Missing/],
    ["chat", { model: "m", messages: [{ role: 1 }] }, "messages[0].role", /expected a string/],
    ["completions", { model: "m" }, "prompt", /Missing/],
    ["completions", { model: "m", prompt: "" }, "prompt", /empty/],
    ["completions", { model: "m", prompt: [] }, "prompt", /empty/],
    ["completions", { model: "m", prompt: [[]] }, "prompt[0][0]", /empty/],
    ["completions", { model: "m", prompt: ["a", ""] }, "prompt[1]", /empty/],
    ["completions", { model: "m", prompt: ["a", [1]] }, "prompt", /mixes/],
    ["completions", { model: "m", prompt: [1, -1] }, "prompt[1]", /token ids/],
    ["completions", { model: "m", prompt: [1, "a"] }, "prompt[1]", /token ids/],
    ["completions", { model: "m", prompt: [1.5] }, "prompt[0]", /token ids/],
    ["completions", { model: "m", prompt: { a: 1 } }, "prompt", /an object/],
    ["completions", { model: "m", prompt: [true] }, "prompt[0]", /a boolean/],
    ["chat", { ...chat, stream: "true" }, "stream", /a boolean, but got a string/],
    [
      "chat",
      { ...chat, stream_options: { include_usage: true } },
      "stream_options",
      /only allowed/,
    ],
    [
      "chat",
      { ...chat, stream: true, stream_options: [] },
      "stream_options",
      /an object, but got an array/,
    ],
    [
      "chat",
      { ...chat, stream: true, stream_options: { include_usage: 1 } },
      "stream_options.include_usage",
      /boolean/,
    ],
    ["chat", { ...chat, n: 0 }, "n", /at least 1, but got 0/],
    ["chat", { ...chat, n: 1.5 }, "n", /an integer, but got the number 1.5/],
    ["chat", { ...chat, max_tokens: 0 }, "max_tokens", /at least 1/],
    ["chat", { ...chat, max_completion_tokens: -4 }, "max_completion_tokens", /at least 1/],
    ["chat", { ...chat, max_tokens: 4, min_tokens: 9 }, "min_tokens", /'min_tokens' \(9\) is more/],
    ["chat", { ...chat, cache_salt: "" }, "cache_salt", /must not be empty/],
    ["chat", { ...chat, priority: "high" }, "priority", /an integer/],
    ["chat", { ...chat, model: "m".repeat(70_000) }, "model", /longer than/],
  ];
  for (const [route, body, param, message] of cases) {
    const [code, gotParam, text] = refusal(route, body);
    t.same([code, gotParam], ["BATON_BAD_REQUEST", param], JSON.stringify(body).slice(0, 80));
    t.match(text, message);
  }
});

t.test("a body that is not a JSON object is refused as such", async (t) => {
  for (const text of [
    "",
    "{bad",
    "[]",
    "null",
    '"a"',
    '{"model":"m"',
    '{"model":"\\x"}',
    '{"model":"m",}',
  ]) {
    t.equal(refusal("chat", text)[0], "BATON_BAD_JSON", text);
  }
  const wrongUtf8 = parseGenerateRequest(
    "chat",
    Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d),
  );
  t.match(wrongUtf8, { ok: false, error: { code: "BATON_BAD_JSON" } });
  const utf16 = parseGenerateRequest("chat", Buffer.from(JSON.stringify(chat), "utf16le"));
  t.match(utf16, { ok: false, error: { code: "BATON_BAD_JSON" } });
});
