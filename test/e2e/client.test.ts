import OpenAI from "openai";
import t from "tap";
import {
  answerTo,
  completion,
  eventsOf,
  idsOfChat,
  idsOfText,
  post,
  promptOf,
} from "./support/answers.ts";
import { comesToRest } from "./support/at-rest.ts";
import { ledgerOf, model } from "./support/engine.ts";
import { decisionsOf, startFleet, winnerTerm } from "./support/fleet.ts";
import { until } from "./support/until.ts";

const messages = [
  { role: "system" as const, content: "You are terse." },
  { role: "user" as const, content: "Why split prefill from decode? ".repeat(30) },
];

t.test("the official client gets chats, completions, streams and typed errors", async (t) => {
  const fleet = await startFleet(t, { prefill: 2, decode: 2, speed: 20 });
  const client = new OpenAI({ apiKey: "none", baseURL: `${fleet.url}/v1`, maxRetries: 0 });
  const chatAnswer = answerTo(idsOfChat(messages), 12).join("");

  t.equal((await client.models.list()).data[0]?.id, model);

  const chat = await client.chat.completions.create({ model, messages, max_completion_tokens: 12 });
  t.equal(chat.choices[0]?.message.content, chatAnswer);
  t.match(chat.usage, { completion_tokens: 12 });

  for (const includesUsage of [true, false]) {
    const stream = await client.chat.completions.create({
      model,
      messages,
      max_tokens: 12,
      stream: true,
      ...(includesUsage ? { stream_options: { include_usage: true } } : {}),
    });
    let text = "";
    let usages = 0;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      if (chunk.usage) {
        usages += 1;
        t.same(chunk.choices, [], "usage comes in a chunk of its own");
      }
    }
    t.equal(text, chatAnswer);
    t.equal(usages, includesUsage ? 1 : 0, "iff it was asked for");
  }

  const text = "Tell me about KV caches. ".repeat(20);
  const given = await client.completions.create({ model, prompt: text, max_tokens: 7 });
  t.equal(given.choices[0]?.text, answerTo(idsOfText(text), 7).join(""));

  const ids = promptOf(1, 300);
  const streamed = await client.completions.create({
    model,
    prompt: ids,
    max_tokens: 9,
    stream: true,
  });
  let streamedText = "";
  for await (const chunk of streamed) streamedText += chunk.choices[0]?.text ?? "";
  t.equal(streamedText, answerTo(ids, 9).join(""));

  const unsplit = await client.completions.create({
    model,
    prompt: [ids, promptOf(2, 200)],
    max_tokens: 3,
  });
  t.same(
    unsplit.choices.map((choice) => choice.text),
    [answerTo(ids, 3).join(""), answerTo(promptOf(2, 200), 3).join("")],
    "two prompts are served whole by one decode worker",
  );

  const aborted = await client.chat.completions.create({
    model,
    messages,
    max_tokens: 500,
    stream: true,
  });
  for await (const _ of aborted) break;

  const rejects = (body: object) =>
    client.chat.completions.create(body as never).then(
      () => t.fail("it was accepted"),
      (error: unknown) => error,
    );
  t.match(await rejects({ model: "nobody", messages }), {
    status: 404,
    code: "BATON_UNKNOWN_MODEL",
  });
  t.ok((await rejects({ model: "nobody", messages })) instanceof OpenAI.NotFoundError);
  t.match(await rejects({ model, messages: [] }), { status: 400, param: "messages" });
  t.match(await rejects({ model, messages, max_tokens: "many" }), {
    status: 400,
    param: "max_tokens",
  });
  t.match(await rejects({ model, messages, stream_options: {} }), {
    status: 400,
    param: "stream_options",
  });
  t.ok((await rejects({ model })) instanceof OpenAI.BadRequestError);
  await comesToRest(t, fleet);
});

t.test(
  "raw requests: bad JSON, too large, unknown routes, broken streams are told in JSON",
  async (t) => {
    const fleet = await startFleet(t, { prefill: 1, decode: 1, speed: 20 });
    t.match(await post(fleet, "{bad"), { status: 400, error: { code: "BATON_BAD_JSON" } });
    const large = await post(
      fleet,
      JSON.stringify({ model, prompt: "x".repeat(33 * 1024 * 1024) }),
    );
    t.match(large, { status: 413, error: { code: "BATON_BODY_TOO_LARGE", message: /33554432/ } });
    t.match(await post(fleet, {}, { path: "/v1/nothing" }), {
      status: 404,
      error: { code: "BATON_UNKNOWN_ROUTE" },
    });
    const early = await post(fleet, { ...completion([1, 2, 3], 2), stream: true, min_tokens: 9 });
    t.match(early, { status: 400, error: { param: "min_tokens" } }, "before a stream has begun");
  },
);

t.test("nothing with which a client could steer engines reaches one", async (t) => {
  const fleet = await startFleet(t, { prefill: 1, decode: 1, speed: 20 });
  const ids = promptOf(3, 100);
  const body = JSON.stringify(completion(ids, 4)).slice(0, -1);
  const hostile = `${body},"kv_transfer_params":{"do_remote_prefill":true,"remote_host":"evil"},"kv\\u005ftransfer_params":{"remote_host":"evil"},"kv_transfer_params":{"remote_host":"evil2"},"rid":"evil","bootstrap_host":"evil","data_parallel_rank":7,"request_id":"evil","vllm_xargs":{"kv_transfer_params":"evil"}}`;
  const headers = {
    "x-request-id": "evil",
    "x-data-parallel-rank": "7",
    "x-prefiller-url": "http://evil",
    "x-prefiller-host-port": "evil:1",
    "x-override-bootstrap-host": "evil",
    authorization: "Bearer evil",
    cookie: "evil=1",
  };
  const answer = await post(fleet, hostile, { headers });
  t.equal(answer.status, 200, answer.text);
  t.equal(answer.completion.choices[0]?.text, answerTo(ids, 4).join(""));
  for (const engine of fleet.engines) {
    const { headersSeen, lastBodies } = await ledgerOf(engine);
    t.notMatch(JSON.stringify([headersSeen, lastBodies]), /evil/, engine.workerId);
    t.ok(lastBodies.length > 0, `${engine.workerId} was asked`);
    for (const seen of headersSeen)
      t.notOk("x-data-parallel-rank" in seen, "no preference stays absent");
  }
});

t.test(
  "a prompt returns to the worker that has it, with as many tokens as predicted",
  async (t) => {
    const fleet = await startFleet(t, { prefill: 2, decode: 2, speed: 20 });
    const ids = promptOf(4, 1_000);
    const first = await post(fleet, completion(ids, 2));
    const winner = (await decisionsOf(fleet, first.requestId))[0]!.winner!.workerId;
    const engine = fleet.prefillEngines.find((each) => each.workerId === winner)!;
    t.ok(
      (await ledgerOf(engine)).tokensComputed >= 1_000,
      "the worker that the record names computed it",
    );
    const again = await until(async () => {
      const answer = await post(fleet, completion(ids, 2));
      const [prefill] = await decisionsOf(fleet, answer.requestId);
      return winnerTerm(prefill!, "cached on gpu") === 992 ? { answer, prefill: prefill! } : null;
    }, "the events of the first prompt have come");
    t.equal(again.prefill.winner?.workerId, winner);
    t.equal(again.answer.completion.usage.prompt_tokens_details?.cached_tokens, 992);

    const turns = [...messages];
    const winners = new Set<string>();
    for (let turn = 0; turn < 3; turn++) {
      const chat = await post(
        fleet,
        { model, messages: turns, max_tokens: 4 },
        { path: "/v1/chat/completions" },
      );
      t.equal(chat.status, 200, chat.text);
      const [prefill, decode] = await decisionsOf(fleet, chat.requestId);
      winners.add(prefill!.winner!.workerId);
      for (const record of [prefill!, decode!]) {
        t.equal(record.candidates.length, 2, "every candidate stands in the record");
        t.ok(
          record.candidates.every((each) => each.terms.length > 3),
          "with each of its terms",
        );
      }
      const { message } = JSON.parse(chat.text).choices[0];
      turns.push(message, { role: "user", content: `And then, in turn ${turn}?` });
    }
    t.equal(winners.size, 1, "a conversation stays where its history is");
  },
);

t.test("50 clients that leave at random moments leave nothing behind", async (t) => {
  const seed = Number(process.env["BATON_SEED"] ?? Date.now() % 1_000_000);
  t.comment(`seed ${seed} (BATON_SEED repeats it)`);
  const fleet = await startFleet(t, { prefill: 2, decode: 2, speed: 4 });
  let state = seed;
  const random = () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
  const leave = async (at: number): Promise<void> => {
    const controller = new AbortController();
    const ids = promptOf(seed + at, 100 + Math.floor(random() * 8_000));
    const afterMs = random() * 600;
    const body = completion(ids, 200, { ignore_eos: true, stream: random() < 0.5 });
    const timer = setTimeout(() => controller.abort(), afterMs);
    await post(fleet, body, { signal: controller.signal }).catch((error: unknown) => {
      if (!controller.signal.aborted) throw error;
    });
    clearTimeout(timer);
  };
  await Promise.all(Array.from({ length: 50 }, (_, at) => leave(at)));
  await comesToRest(t, fleet);

  // Exactly between the legs: the prefill engine has given a handle, nobody has used it yet.
  const [prefill] = fleet.prefillEngines;
  const before = (await ledgerOf(prefill!)).handlesIssued;
  const controller = new AbortController();
  const between = Promise.all(
    Array.from({ length: 8 }, (_, at) =>
      post(fleet, completion(promptOf(seed + 100 + at, 3_000), 200), {
        signal: controller.signal,
      }).catch(() => {}),
    ),
  );
  await until(async () => (await ledgerOf(prefill!)).handlesIssued > before, "a handle is out");
  controller.abort();
  await between;
  await comesToRest(t, fleet);
  const alive = await post(fleet, completion(promptOf(seed, 64), 3, { stream: true }));
  t.equal(eventsOf(alive.text).at(-1), "[DONE]", "the fleet serves on");
});
