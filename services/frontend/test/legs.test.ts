import { batonError } from "@baton/domain";
import { fail, hashListToBytes, ok } from "@baton/kit";
import { hashBlocks, hashesPerPlanMax, namespaceRoot } from "@baton/kv-blocks";
import { clientFieldsStripped, memberBytes, scanTopLevel } from "@baton/openai-api";
import type { Tokenizer } from "@baton/ports";
import fc from "fast-check";
import t from "tap";
import { candidate } from "./fake-scheduler.ts";
import { chat, handleText, jsonHead, openRig, prefillAnswer, sse, sseHead } from "./rig.ts";

const keepForPull =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}';

function tokenizerOf(tokenIds: Uint32Array): Tokenizer {
  return {
    tokenize: () => Promise.resolve(ok({ tokenIds, source: "local" as const })),
    close: () => Promise.resolve(),
  };
}

t.test(
  "both legs are the client's own bytes: only what a leg edits and what steers engines changes",
  async (t) => {
    const rig = await openRig(t);
    const sent = await rig.send(
      '{ "model":"m" ,"messages":[{"role":"user","content":"h\\u00e9 \\"}"}],"stream":true, ' +
        '"stream_options":{"include_usage":true},"max_tokens":7,"seed":12345678901234567890,' +
        '"temperature":0.70000000000000001,"rid":"mine","kv\\u005ftransfer_params":{"remote_host":"10.6.6.6"},' +
        '"bootstrap_room":1,"vllm_xargs":{"kv_x":1,"top":12345678901234567891},"stop":["\\n"],"user":"u" }',
    );
    const prefill = sent.exchanges()[0]!;
    const kept = '"seed":12345678901234567890,"temperature":0.70000000000000001';
    const xargs = '"vllm_xargs":{"top":12345678901234567891}';
    t.equal(
      prefill.body,
      `{ "model":"m" ,"messages":[{"role":"user","content":"h\\u00e9 \\"}"}],${kept},"user":"u",${xargs},` +
        `"stream":false,"max_tokens":1,"max_completion_tokens":1,"ignore_eos":true,"kv_transfer_params":${keepForPull}}`,
    );
    t.match(prefill.call, {
      workerId: "p0",
      url: "http://p0",
      path: "/v1/chat/completions",
      method: "POST",
    });
    const decode = await rig.prefilled(sent, "h1");
    t.equal(
      decode.body,
      `{ "model":"m" ,"messages":[{"role":"user","content":"h\\u00e9 \\"}"}],"stream":true, ` +
        `"stream_options":{"include_usage":true},"max_tokens":7,${kept},"stop":["\\n"],"user":"u",${xargs},` +
        `"kv_transfer_params":${handleText("h1")}}`,
    );
    t.match(decode.call, { workerId: "d0", url: "http://d0", path: "/v1/chat/completions" });
  },
);

t.test("whatever a client sends, what a leg does not edit stays byte for byte", async (t) => {
  const rig = await openRig(t);
  const value = fc.oneof(
    fc.json({ maxDepth: 2 }),
    fc.bigInt().map(String),
    fc.constant("1.10000000000000000001e5"),
    fc.constant(' [1 , 18446744073709551615,{"stream":1} ]'),
  );
  const name = fc.oneof(
    fc.stringMatching(/^x[a-z_]{1,8}$/),
    fc.constantFrom(...clientFieldsStripped, "min_p"),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(name, value), { maxLength: 8 }),
      fc.boolean(),
      async (extra, isStream) => {
        const members: [string, string][] = [
          ["model", '"m"'],
          ["messages", '[{"role":"user","content":"x"}]'],
          ["stream", String(isStream)],
          ...extra,
        ];
        const body = `{${members.map(([key, json]) => `${JSON.stringify(key)}:${json}`).join(",")}}`;
        const sent = await rig.send(body);
        const [prefill] = sent.exchanges();
        if (prefill === undefined) {
          return sent.sink.lastError?.code === "BATON_BAD_REQUEST";
        }
        const decode = await rig.prefilled(sent);
        decode.answer(200, isStream ? sseHead : jsonHead, isStream ? sse("[DONE]") : "{}");
        for (const leg of [prefill, decode]) {
          JSON.parse(leg.body);
          const bytes = Buffer.from(leg.body);
          for (const [key] of members) {
            if (key === "kv_transfer_params" || (leg === prefill && key === "stream")) continue;
            const before = memberBytes(Buffer.from(body), key);
            const after = memberBytes(bytes, key);
            const want = clientFieldsStripped.has(key) ? null : before;
            if (Buffer.compare(after ?? Buffer.of(), want ?? Buffer.of()) !== 0) return false;
          }
          const scanned = scanTopLevel(bytes);
          const handles = scanned.ok
            ? scanned.value.filter((each) => each.key === "kv_transfer_params").length
            : 0;
          if (handles !== 1) return false;
        }
        return sent.sink.isOver;
      },
    ),
    { numRuns: 200 },
  );
  t.equal(rig.live(), 0);
});

t.test("a handle reaches the decode engine as its bytes came, whatever its numbers", async (t) => {
  const rig = await openRig(t);
  const sent = await rig.send(chat());
  const odd = handleText("h").replace('"x":', ' "deep" : {"k":[1e400, -0.0, "\\ud800"]} ,"x":');
  const text = prefillAnswer("h", 5, odd).replace("}}", "} }");
  // A cut inside an UTF-8 sequence and inside the handle changes nothing.
  const bytes = Buffer.from(text.replace('"e\\u0031"', '"é✓"'));
  const [exchange] = sent.exchanges();
  exchange!.head(200, jsonHead);
  for (let at = 0; at < bytes.length; at += 7) exchange!.data(bytes.subarray(at, at + 7));
  exchange!.end();
  await rig.tick(0);
  const got = memberBytes(Buffer.from(sent.exchanges()[1]!.body), "kv_transfer_params");
  t.equal(Buffer.from(got!).toString(), odd.replace('"e\\u0031"', '"é✓"'));
});

t.test(
  "an engine's request id names the attempt, and only listed headers go to engines",
  async (t) => {
    const rig = await openRig(t);
    rig.decode.decodeRank = 3;
    const sent = await rig.send(chat(), {
      requestId: "req-9",
      headers: {
        authorization: "Bearer secret",
        cookie: "c=1",
        "x-request-id": "mine",
        "x-data-parallel-rank": "5",
        "x-prefiller-url": "http://evil",
        traceparent: "00-1-2-01",
        "x-session-id": "s1",
        accept: "text/event-stream",
      },
    });
    sent.exchanges()[0]!.answer(500, {}, "boom");
    await rig.tick(0);
    t.same(
      sent.exchanges().map(({ call }) => [call.workerId, call.headers]),
      ["1", "2"].map((attempt, at) => [
        `p${at}`,
        {
          accept: "text/event-stream",
          "content-type": "application/json",
          traceparent: "00-1-2-01",
          "x-session-id": "s1",
          "x-request-id": `req-9-${attempt}`,
        },
      ]),
    );
    const decode = await rig.prefilled(sent);
    t.match(decode.call.headers, { "x-request-id": "req-9-2", "x-data-parallel-rank": "3" });
    t.match(decode.call, { headersTimeoutMs: 60_000, bodyTimeoutMs: 50_000 });
  },
);

t.test("a plan carries hashes for each block size in use, and never text or tokens", async (t) => {
  const tokenIds = Uint32Array.from({ length: 100 }, (_, at) => 0x01020304 + at);
  const rig = await openRig(t, { tokenizer: tokenizerOf(tokenIds) });
  rig.prefill.tellFleet({ indexBlockSizes: [16, 48] });
  await rig.tick(0);
  const text = "the secret of the prompt";
  const body = `{"model":"m","cache_salt":"pepper","max_tokens":9,"messages":[{"role":"user","content":"${text}"}]}`;
  const sent = await rig.send(body);
  await rig.prefilled(sent);
  const root = namespaceRoot({ model: "m", loraName: null, cacheSalt: "pepper" });
  const hashSets = [16, 48].map((blockSizeTokens) => ({
    blockSizeTokens,
    hashes: hashListToBytes(hashBlocks(tokenIds, blockSizeTokens, root)),
  }));
  t.equal(hashSets[0]!.hashes.length, 6 * 8);
  for (const plan of [rig.prefill.places[0]!, rig.decode.reserves[0]!]) {
    t.match(plan, {
      requestId: sent.requestId,
      attempt: 1,
      frontend: { frontendId: "f0", incarnation: "7" },
      promptTokens: 100,
      promptBytes: `[{"role":"user","content":"${text}"}]`.length,
      maxOutputTokens: 9,
      deadlineMs: 600_000,
      excluded: [],
    });
    t.same(
      plan.hashSets.map(({ blockSizeTokens, hashes }) => ({
        blockSizeTokens,
        hashes: Uint8Array.from(hashes),
      })),
      hashSets,
    );
  }
  const bigEndian = Buffer.of(1, 2, 3, 4);
  const littleEndian = Buffer.of(4, 3, 2, 1);
  for (const payload of [...rig.prefill.payloads, ...rig.decode.payloads]) {
    for (const part of [Buffer.from(text), Buffer.from("pepper"), bigEndian, littleEndian]) {
      t.notOk(Buffer.from(payload).includes(part), "nothing of the prompt is in a message");
    }
  }
  t.equal(rig.metrics.value("baton_frontend_prompt_tokens_total", { source: "local" }), 100);
});

t.test("a prompt of more blocks than a plan carries is cut from the end and counted", async (t) => {
  const tokenIds = new Uint32Array(16 * (hashesPerPlanMax + 1)).fill(7);
  const rig = await openRig(t, { tokenizer: tokenizerOf(tokenIds) });
  await rig.send();
  t.match(rig.prefill.places[0], { promptTokens: tokenIds.length });
  t.equal(rig.prefill.places[0]!.hashSets[0]!.hashes.length, hashesPerPlanMax * 8);
  t.equal(rig.metrics.value("baton_frontend_hashes_cut_total"), 1);
});

t.test("without tokens a request is served all the same, and the reason is counted", async (t) => {
  const reasons: [string, Tokenizer][] = [
    ["tokenizer off", { tokenize: async () => null, close: async () => {} }],
    [
      "tokenizer failed",
      {
        tokenize: async () => fail(batonError("BATON_TOKENIZER_FAILED", "no vocabulary")),
        close: async () => {},
      },
    ],
    ["shorter than a block", tokenizerOf(Uint32Array.of(1, 2, 3))],
  ];
  for (const [reason, tokenizer] of reasons) {
    const rig = await openRig(t, { tokenizer });
    const sent = await rig.send();
    t.match(rig.prefill.places[0], { promptTokens: reason === "shorter than a block" ? 3 : null });
    const decode = await rig.prefilled(sent);
    decode.answer(200, jsonHead, "{}");
    t.same([sent.sink.status, sent.sink.text], [200, "{}"], reason);
    t.equal(rig.metrics.value("baton_frontend_without_overlap_total", { reason }), 1, reason);
    const warned = rig.logger.lines.filter((line) => line.message === "prompt not tokenised");
    t.equal(warned.length, reason === "tokenizer failed" ? 1 : 0);
  }
  const rig = await openRig(t, { tokenizer: tokenizerOf(new Uint32Array(64)) });
  rig.prefill.tellFleet({ indexBlockSizes: [] });
  await rig.tick(0);
  await rig.send();
  t.same(rig.prefill.places[0]!.hashSets, []);
  const labels = { reason: "no index" };
  t.equal(rig.metrics.value("baton_frontend_without_overlap_total", labels), 1);
});

t.test("token ids given by the client are hashed without a tokenizer", async (t) => {
  const rig = await openRig(t);
  const tokenIds = Uint32Array.from({ length: 32 }, (_, at) => at);
  const body = `{"model":"m","prompt":[${tokenIds.join(",")}]}`;
  const sent = await rig.send(body, { route: "completions" });
  const root = namespaceRoot({ model: "m", loraName: null, cacheSalt: null });
  const want = hashListToBytes(hashBlocks(tokenIds, 16, root));
  t.same(Uint8Array.from(rig.prefill.places[0]!.hashSets[0]!.hashes), want);
  t.equal(rig.metrics.value("baton_frontend_prompt_tokens_total", { source: "client" }), 32);
  t.equal(sent.exchanges()[0]!.call.path, "/v1/completions");
  t.match(
    JSON.parse(sent.exchanges()[0]!.body),
    { max_tokens: 1, max_completion_tokens: undefined },
    "completions have no max_completion_tokens",
  );
});

t.test(
  "one engine does both where a request cannot be split, with its body as it is",
  async (t) => {
    const rig = await openRig(t);
    const body = chat('"n":2,"rid":"x","max_tokens":5');
    const sent = await rig.send(body);
    t.equal(rig.prefill.places.length, 0);
    t.same(rig.decode.reserves[0]!.candidates, []);
    const [only] = sent.exchanges();
    t.equal(only!.body, chat('"n":2,"max_tokens":5'));
    const reason = "n is more than 1";
    t.equal(rig.metrics.value("baton_frontend_unsplit_total", { reason }), 1);
    only!.answer(200, jsonHead, "{}");
    await rig.tick(0);
    t.same(rig.decode.stages(sent.requestId), ["first-byte", "ended done"]);
    t.equal(rig.decode.handles.length, 0);
  },
);

t.test("an aggregated worker keeps its bind and gets the client's body", async (t) => {
  const rig = await openRig(t);
  rig.prefill.onPlace = () => ({
    kind: "bound",
    candidates: [candidate("d0", { isAggregated: true, connector: "none" })],
  });
  const sent = await rig.send();
  t.equal(sent.exchanges().length, 1);
  t.match(sent.exchanges()[0], { body: chat(), call: { workerId: "d0" } });
  t.same(rig.prefill.stages(sent.requestId), []);
});

t.test("a prefill answer that would harm the decode engine never reaches it", async (t) => {
  const bad: [string, string][] = [
    ["no handle", prefillAnswer("h").replace(/,"kv_transfer_params".*/, "}")],
    ["null handle", prefillAnswer("h", 5, "null")],
    ["not JSON inside", prefillAnswer("h", 5, '{"do_remote_prefill":true,,"x" 1}')],
    ["not JSON", "<html>busy</html>"],
    ["cut", prefillAnswer("h").slice(0, -2)],
    ["other token count", prefillAnswer("h", 5, handleText("h", 4))],
    ["too few blocks", prefillAnswer("h", 40)],
    ["empty", ""],
  ];
  for (const [what, answer] of bad) {
    const rig = await openRig(t);
    const sent = await rig.send();
    sent.exchanges()[0]!.answer(200, jsonHead, answer);
    await rig.tick(0);
    const ended = ["prefill-failed by worker", "ended retried"];
    t.same(rig.prefill.stages(sent.requestId), ended, what);
    t.match(sent.exchanges().at(-1), { call: { workerId: "p1" } }, what);
    sent.exchanges()[1]!.answer(200, jsonHead, answer);
    await rig.tick(0);
    t.match(sent.sink.lastError, { code: "BATON_ENGINE_GARBAGE" }, what);
    t.equal(rig.decode.handles.length, 0, what);
    t.equal(rig.live(), 0, what);
  }
});
