import { batonError } from "@baton/domain";
import { settle } from "@baton/ports/testing";
import t, { type Test } from "tap";
import { candidate } from "./fake-scheduler.ts";
import {
  chat,
  handleText,
  jsonHead,
  openRig,
  prefillAnswer,
  type Rig,
  type Sent,
  sse,
  sseHead,
} from "./rig.ts";

const stream = chat('"stream":true');
const lost = batonError("BATON_ENGINE_UNREACHABLE", "decode worker d0: ECONNRESET");
const longPrefill = () => ({
  kind: "bound" as const,
  candidates: [candidate("p0", { predictedPrefillMs: 60_000 })],
});

/** A promise that a test settles, for an answer that a scheduler holds back. */
function held<T>(): { answer: Promise<T>; give: (value: T) => void } {
  const { promise, resolve } = Promise.withResolvers<T>();
  return { answer: promise, give: resolve };
}

/** Both schedulers get the same outcomes, and nothing of the request is left. */
function endedOnce(t: Test, rig: Rig, sent: Sent, stages: readonly string[], attempt = 1) {
  t.same(rig.prefill.stages(sent.requestId, attempt), stages);
  t.same(rig.decode.stages(sent.requestId, attempt), stages);
  t.equal(rig.live(), 0, "no live request");
  t.equal(rig.ownTimers(), 0, "no timer");
}

t.test("a stream passes chunk by chunk as it comes, cut anywhere", async (t) => {
  const rig = await openRig(t);
  const sent = await rig.send(stream);
  const decode = await rig.prefilled(sent);
  const usage = '{"usage":{"prompt_tokens":5,"completion_tokens":9}}';
  const bytes = Buffer.from(sse('{"a":"é"}', '{"b":1}', usage, "[DONE]"));
  decode.head(200, {
    ...sseHead,
    "set-cookie": "a=b",
    "content-length": "999",
    "cache-control": "no",
  });
  t.equal(sent.sink.state, "fresh", "the head waits for the first byte: until then it may retry");
  const pieces = [0, 1, 13, 14, 30, bytes.length].map((at, index, all) =>
    bytes.subarray(at, all[index + 1] ?? at),
  );
  rig.clock.advance(250);
  for (const piece of pieces.slice(0, -1)) {
    decode.data(piece);
    t.same(Buffer.from(sent.sink.chunks.at(-1)!), piece, "passed on at once");
  }
  t.same(sent.sink.headers, { ...sseHead, "cache-control": "no" });
  t.equal(sent.sink.state, "streaming");
  decode.end();
  t.equal(sent.sink.state, "ended");
  t.equal(sent.sink.text, bytes.toString());
  await settle();
  endedOnce(t, rig, sent, ["prefilled", "first-byte", "ended done"]);
  t.match(
    rig.decode.outcomes.map(({ stage }) => stage),
    [{ cachedTokens: 3, promptTokens: 5 }, { legMs: 250 }, { outputTokens: 9 }],
  );
  t.equal(rig.metrics.value("baton_frontend_output_tokens_total"), 9);
  t.equal(rig.metrics.value("baton_frontend_ttft_seconds", { route: "chat" }), 0.25);
  t.equal(rig.total("done"), 1);
});

t.test("a slow client pauses the engine's connection, also on a second attempt", async (t) => {
  const rig = await openRig(t);
  const sent = await rig.send(stream);
  const first = await rig.prefilled(sent);
  first.answer(500, {}, "boom");
  await settle();
  const decode = await rig.prefilled(sent);
  t.equal(decode.call.workerId, "d1");
  decode.head(200, sseHead);
  decode.data("data: 1\n\n");
  t.equal(decode.isPaused, false);
  sent.sink.isFull = true;
  decode.data("data: 2\n\n");
  t.equal(decode.isPaused, true);
  decode.data("data: 3\n\n");
  decode.data("data: [DONE]\n\n");
  decode.end();
  await settle();
  t.equal(sent.sink.text, sse("1", "2"), "what the engine has more waits there");
  t.equal(sent.sink.state, "streaming");
  sent.sink.drain();
  await settle();
  t.equal(sent.sink.text, sse("1", "2", "3", "[DONE]"));
  t.equal(sent.sink.state, "ended");
});

t.test("a stream that ends without [DONE] or breaks says so, and is never replayed", async (t) => {
  const error = (code: string) =>
    new RegExp(`data: \\{"error":\\{[^\\n]*"code":"${code}"\\}\\}\n\n$`);
  const ways: [string, (decode: Awaited<ReturnType<Rig["prefilled"]>>) => void, RegExp][] = [
    ["ends early", (decode) => decode.end(), error("BATON_STREAM_BROKEN")],
    ["connection lost", (decode) => decode.fault(lost), error("BATON_ENGINE_UNREACHABLE")],
  ];
  for (const [what, breakIt, event] of ways) {
    for (const [cut, glued] of [
      ["data: 1\n\n", "data: 1\n\ndata: {"],
      ["data: 1\n\ndata: {", 'data: {\n\ndata: {"error"'],
    ] as const) {
      const rig = await openRig(t);
      const sent = await rig.send(stream);
      const decode = await rig.prefilled(sent);
      decode.head(200, sseHead);
      decode.data(cut);
      breakIt(decode);
      await settle();
      t.match(sent.sink.text, event, what);
      t.ok(sent.sink.text.includes(glued), "the error is an event of its own");
      t.notOk(sent.sink.text.includes("[DONE]"));
      t.equal(sent.sink.state, "ended");
      t.equal(sent.exchanges().length, 2, "no third leg");
      endedOnce(t, rig, sent, ["prefilled", "first-byte", "ended failed by worker"]);
    }
  }
});

t.test("an answer that is no stream keeps its length; broken, its connection is cut", async (t) => {
  const rig = await openRig(t);
  const body = '{"choices":[],"usage":{"completion_tokens":4}}';
  const head = { ...jsonHead, "content-length": String(body.length) };
  const whole = await rig.send();
  const decode = await rig.prefilled(whole);
  decode.head(200, head);
  decode.data(body.slice(0, 20));
  t.equal(whole.sink.text, body.slice(0, 20));
  decode.data(body.slice(20));
  decode.end();
  t.same(whole.sink.headers, head);
  t.equal(whole.sink.text, body);
  t.equal(whole.sink.state, "ended");
  t.equal(rig.metrics.value("baton_frontend_output_tokens_total"), 4);

  const broken = await rig.send();
  const second = await rig.prefilled(broken);
  second.head(200, head);
  second.data(body.slice(0, 20));
  second.fault(lost);
  await settle();
  t.equal(broken.sink.state, "destroyed");
  t.equal(broken.sink.text, body.slice(0, 20));
  endedOnce(t, rig, broken, ["prefilled", "first-byte", "ended failed by worker"]);
  t.equal(rig.total("BATON_ENGINE_UNREACHABLE"), 1);
});

t.test("an engine's refusal is passed on as it is and blames nobody", async (t) => {
  const body = '{"error":{"message":"max_tokens is too large","type":"invalid"}}';
  const head = {
    ...jsonHead,
    "content-length": "9999",
    "transfer-encoding": "chunked",
    connection: "close",
    "set-cookie": "a=b",
    "retry-after": "7",
  };
  for (const leg of ["prefill", "decode"] as const) {
    const rig = await openRig(t);
    const sent = await rig.send(stream);
    const exchange = leg === "prefill" ? sent.exchanges()[0]! : await rig.prefilled(sent);
    exchange.head(400, head);
    exchange.data(body.slice(0, 9));
    exchange.data(body.slice(9));
    exchange.end();
    await settle();
    t.match(sent.sink, { status: 400, state: "ended" }, leg);
    t.same(sent.sink.headers, { ...jsonHead, "retry-after": "7" }, leg);
    t.equal(sent.sink.text, body, leg);
    const stages = leg === "prefill" ? ["prefill-failed"] : ["prefilled"];
    endedOnce(t, rig, sent, [...stages, "ended failed"]);
    t.equal(rig.total("BATON_ENGINE_REJECTED"), 1);
  }
});

t.test("an engine's failure is tried once more elsewhere, then answered with 502", async (t) => {
  for (const leg of ["prefill", "decode"] as const) {
    const rig = await openRig(t);
    const sent = await rig.send(stream);
    for (const attempt of [1, 2]) {
      t.match(rig.prefill.places.at(-1), {
        attempt,
        excluded: attempt === 1 ? [] : [leg === "prefill" ? "p0" : "d0"],
      });
      const exchange = leg === "prefill" ? sent.exchanges().at(-1)! : await rig.prefilled(sent);
      exchange.answer(500, {}, "CUDA error");
      await settle();
    }
    t.match(sent.sink.lastError, { code: "BATON_ENGINE_FAILED", cause: "CUDA error" }, leg);
    const stages =
      leg === "prefill"
        ? [
            ["prefill-failed by worker", "ended retried"],
            ["prefill-failed by worker", "ended failed"],
          ]
        : [
            ["prefilled", "ended retried by worker"],
            ["prefilled", "ended failed by worker"],
          ];
    endedOnce(t, rig, sent, stages[0]!, 1);
    endedOnce(t, rig, sent, stages[1]!, 2);
    t.equal(sent.exchanges().length, leg === "prefill" ? 2 : 4);
    t.equal(rig.metrics.value("baton_frontend_attempts_retried_total"), 1);
  }
});

t.test("a busy engine is passed by without being blamed", async (t) => {
  for (const status of [429, 503]) {
    for (const leg of ["prefill", "decode"] as const) {
      const rig = await openRig(t);
      const sent = await rig.send();
      const exchange = leg === "prefill" ? sent.exchanges()[0]! : await rig.prefilled(sent);
      exchange.answer(status, {}, "queue is full");
      await settle();
      const stages = leg === "prefill" ? ["prefill-failed"] : ["prefilled"];
      t.same(rig.prefill.stages(sent.requestId), [...stages, "ended retried"], `${leg} ${status}`);
      t.match(rig.prefill.places.at(-1), { attempt: 2 });
      (await rig.prefilled(sent)).answer(200, jsonHead, "{}");
      await settle();
      t.equal(sent.sink.status, 200);
      t.equal(rig.live(), 0);
    }
  }
});

t.test(
  "an empty answer with status 200 is a failure, of a stream and of a whole answer",
  async (t) => {
    for (const body of [chat(), stream]) {
      const rig = await openRig(t);
      const sent = await rig.send(body);
      (await rig.prefilled(sent)).answer(200, {}, "");
      await settle();
      t.same(rig.decode.stages(sent.requestId), ["prefilled", "ended retried by worker"]);
      t.equal(sent.sink.state, "fresh");
    }
  },
);

t.test("a handle that the broker refuses, or says nothing about, is not presented", async (t) => {
  for (const way of ["refused", "silent"] as const) {
    const rig = await openRig(t);
    const broker = rig.decode.onHandle;
    rig.decode.onHandle = (message) => {
      if (message.attempt > 1) return broker(message);
      return way === "refused"
        ? { kind: "refused", reason: "expires in 12 ms" }
        : held<never>().answer;
    };
    const sent = await rig.send();
    rig.clock.advance(30);
    sent.exchanges()[0]!.answer(200, jsonHead, prefillAnswer("h1"));
    await settle();
    t.match(rig.decode.handles[0], {
      handleId: "h1",
      attempt: 1,
      ageMs: 0,
      promptTokens: 5,
      connector: "nixl-pull",
      prefill: { workerId: "p0", incarnation: "1" },
      decode: { workerId: "d0", incarnation: "1" },
    });
    if (way === "silent") await rig.tick(2_000);
    endedOnce2(t, rig, sent, ["prefilled", "ended retried"]);
    t.same(
      sent.exchanges().map((each) => each.call.workerId),
      ["p0", "p0"],
      "a refused handle is nobody's fault, so the prompt is prefilled again",
    );
    const decode = await rig.prefilled(sent, "h2");
    t.ok(decode.body.includes(handleText("h2")));
    decode.answer(200, jsonHead, "{}");
    t.equal(sent.sink.status, 200);
  }
});

function endedOnce2(t: Test, rig: Rig, sent: Sent, stages: readonly string[]) {
  t.same(rig.prefill.stages(sent.requestId), stages);
  t.same(rig.decode.stages(sent.requestId), stages);
}

t.test("a decode side that answers too late is asked once more", async (t) => {
  const rig = await openRig(t);
  const late = held<Awaited<ReturnType<typeof rig.decode.onReserve>>>();
  const prompt = rig.decode.onReserve;
  rig.decode.onReserve = (message) => (message.attempt === 1 ? late.answer : prompt(message));
  const sent = await rig.send();
  await rig.tick(250);
  t.same(rig.decode.stages(sent.requestId), ["ended retried"]);
  late.give(await prompt({ ...rig.decode.reserves[0]! }));
  await settle();
  t.match(sent.exchanges(), { length: 1 }, "the late grant starts nothing");
  (await rig.prefilled(sent)).answer(200, jsonHead, "{}");
  t.equal(sent.sink.status, 200);
});

t.test("refusals of the schedulers reach the client with their status", async (t) => {
  const rig = await openRig(t);
  const saturated = batonError("BATON_SATURATED", "busy for 130 s", { retryAfterS: 9 });
  rig.prefill.onPlace = () => ({ kind: "rejected", error: saturated });
  const placed = await rig.send();
  t.same(placed.sink.lastError, saturated);
  t.same(rig.prefill.stages(placed.requestId), ["ended failed"]);
  rig.prefill.onPlace = () => ({ kind: "bound", candidates: [candidate("p0")] });
  rig.decode.onReserve = () => ({ kind: "refused", error: saturated });
  const reserved = await rig.send();
  t.same(reserved.sink.lastError, saturated);
  t.equal(rig.total("BATON_SATURATED"), 2);
  t.equal(rig.engines.exchanges.length, 0);
  t.equal(rig.live(), 0);
});

t.test("a connector that this build does not know is an answer, not a crash", async (t) => {
  const rig = await openRig(t);
  const prompt = rig.decode.onReserve;
  rig.decode.onReserve = async (message) => {
    const answer = await prompt(message);
    return answer.kind === "remote" ? { ...answer, connector: "teleport" } : answer;
  };
  const sent = await rig.send();
  t.match(sent.sink.lastError, { code: "BATON_NO_COMPATIBLE_PAIR", message: /teleport/ });
  endedOnce(t, rig, sent, ["ended failed"]);
});

interface Stage {
  readonly name: string;
  /** Brings a request to the stage; gives what lets it go on after the client left. */
  reach(rig: Rig): Promise<{ sent: Sent; goOn: () => Promise<void> | void }>;
  readonly stages: readonly string[];
  /** Engine exchanges by leg and whether they were aborted. */
  readonly legs: readonly string[];
}

const legsOf = (sent: Sent) =>
  sent.exchanges().map((each) => {
    const leg = each.call.workerId.startsWith("p") ? "prefill" : "decode";
    return each.isAborted ? `${leg} aborted` : leg;
  });

/** What happens when the client leaves, stage by stage. */
const stages: readonly Stage[] = [
  {
    name: "while a prefill worker is looked for",
    async reach(rig) {
      const late = held<Awaited<ReturnType<typeof rig.prefill.onPlace>>>();
      rig.prefill.onPlace = () => late.answer;
      const sent = await rig.send();
      return { sent, goOn: () => late.give({ kind: "bound", candidates: [candidate("p0")] }) };
    },
    stages: ["ended client-closed"],
    legs: [],
  },
  {
    name: "while a decode worker is looked for",
    async reach(rig) {
      const late = held<Awaited<ReturnType<typeof rig.decode.onReserve>>>();
      const prompt = rig.decode.onReserve;
      rig.decode.onReserve = () => late.answer;
      const sent = await rig.send();
      return { sent, goOn: async () => late.give(await prompt(rig.decode.reserves[0]!)) };
    },
    stages: ["ended client-closed"],
    legs: [],
  },
  {
    name: "during a long prefill",
    async reach(rig) {
      rig.prefill.onPlace = longPrefill;
      return { sent: await rig.send(), goOn: () => {} };
    },
    stages: ["prefill-failed", "ended client-closed"],
    legs: ["prefill aborted"],
  },
  {
    name: "during a prefill that is nearly done",
    async reach(rig) {
      const sent = await rig.send();
      return {
        sent,
        async goOn() {
          const abandoned = await rig.prefilled(sent, "h");
          t.match(
            JSON.parse(abandoned.body),
            { max_tokens: 1, stream: true, kv_transfer_params: { remote_request_id: "h" } },
            "the handle is presented so that the prefill engine frees its blocks",
          );
          t.equal(rig.metrics.value("baton_frontend_abandoned_legs_total"), 1);
          abandoned.head(200, sseHead);
          abandoned.data("data: 1\n\n");
          await settle();
        },
      };
    },
    stages: ["prefilled", "first-byte", "ended client-closed"],
    legs: ["prefill", "decode aborted"],
  },
  {
    name: "during a prefill that was nearly done and does not end",
    async reach(rig) {
      const sent = await rig.send();
      return { sent, goOn: () => rig.tick(4 * 500) };
    },
    stages: ["prefill-failed", "ended client-closed"],
    legs: ["prefill aborted"],
  },
  {
    name: "while the broker is asked",
    async reach(rig) {
      const late = held<Awaited<ReturnType<typeof rig.decode.onHandle>>>();
      rig.decode.onHandle = () => late.answer;
      const sent = await rig.send();
      await rig.prefilled(sent);
      return {
        sent,
        async goOn() {
          late.give({ kind: "claimed", presentWithinMs: 20_000 });
          await settle();
          sent.exchanges()[1]!.answer(500, {}, "");
          await settle();
        },
      };
    },
    stages: ["prefilled", "ended client-closed"],
    legs: ["prefill", "decode"],
  },
  {
    name: "while the broker is asked, who then refuses",
    async reach(rig) {
      const late = held<Awaited<ReturnType<typeof rig.decode.onHandle>>>();
      rig.decode.onHandle = () => late.answer;
      const sent = await rig.send();
      await rig.prefilled(sent);
      return { sent, goOn: () => late.give({ kind: "refused", reason: "used" }) };
    },
    stages: ["prefilled", "ended client-closed"],
    legs: ["prefill"],
  },
  {
    name: "while the KV is pulled",
    async reach(rig) {
      const sent = await rig.send(stream);
      const decode = await rig.prefilled(sent);
      return {
        sent,
        goOn() {
          t.equal(decode.isAborted, false, "a pull that runs is let run: it frees the blocks");
          decode.head(200, sseHead);
          decode.data("data: 1\n\n");
        },
      };
    },
    stages: ["prefilled", "first-byte", "ended client-closed"],
    legs: ["prefill", "decode aborted"],
  },
  {
    name: "while the KV is pulled, which never ends",
    async reach(rig) {
      const sent = await rig.send(stream);
      await rig.prefilled(sent);
      return { sent, goOn: () => rig.tick(2_000) };
    },
    stages: ["prefilled", "ended client-closed"],
    legs: ["prefill", "decode aborted"],
  },
  {
    name: "while the answer streams",
    async reach(rig) {
      const sent = await rig.send(stream);
      const decode = await rig.prefilled(sent);
      decode.head(200, sseHead);
      decode.data("data: 1\n\n");
      return { sent, goOn: () => decode.data("data: 2\n\n") };
    },
    stages: ["prefilled", "first-byte", "ended client-closed"],
    legs: ["prefill", "decode aborted"],
  },
  {
    name: "while one engine does both",
    async reach(rig) {
      return { sent: await rig.send(chat('"n":2')), goOn: () => {} };
    },
    stages: ["ended client-closed"],
    legs: ["decode aborted"],
  },
];

for (const stage of stages) {
  t.test(`a client that leaves ${stage.name} leaves nothing behind`, async (t) => {
    const rig = await openRig(t);
    const { sent, goOn } = await stage.reach(rig);
    sent.leave();
    await settle();
    await goOn();
    await settle();
    endedOnce(t, rig, sent, stage.stages);
    t.same(legsOf(sent), stage.legs);
    t.equal(rig.total("client-closed"), 1);
    t.notOk(sent.sink.text.includes("2"), "nothing is written any more");
    const before = rig.engines.exchanges.length;
    await rig.tick(700_000);
    t.equal(rig.engines.exchanges.length, before, "no timer wakes it up");
    endedOnce(t, rig, sent, stage.stages);
  });

  t.test(`the deadline ${stage.name} answers once and cleans up like that`, async (t) => {
    const rig = await openRig(t, {
      config: { deadlineMs: 10_000, reserveDeadlineMs: 60_000, claimDeadlineMs: 60_000 },
    });
    const { sent, goOn } = await stage.reach(rig);
    // A plan has no more time than its request, so that its own deadline comes at the same moment.
    await rig.tick(10_000);
    await goOn();
    await settle();
    const isStreaming = stage.name === "while the answer streams";
    if (isStreaming) t.match(sent.sink.text, /BATON_DEADLINE/);
    else t.match(sent.sink.lastError, { code: "BATON_DEADLINE" });
    t.equal(sent.sink.state, "ended");
    t.equal(rig.live(), 0);
    t.equal(rig.ownTimers(), 0);
    t.equal(rig.total("BATON_DEADLINE"), 1);
    const ended = rig.decode.stages(sent.requestId).filter((each) => each.startsWith("ended"));
    t.same(ended, ["ended failed"]);
    t.same(
      sent.exchanges().filter((each) => !each.isOver),
      [],
      "no engine works for nobody",
    );
  });
}

t.test("a client that leaves before its prompt is tokenised is not planned for", async (t) => {
  const tokenized = held<null>();
  const rig = await openRig(t, {
    tokenizer: { tokenize: () => tokenized.answer, close: async () => {} },
  });
  const sent = await rig.send();
  sent.leave();
  tokenized.give(null);
  await settle();
  t.equal(rig.prefill.places.length, 0);
  t.equal(rig.live(), 0);
  t.equal(rig.total("client-closed"), 1);
});
