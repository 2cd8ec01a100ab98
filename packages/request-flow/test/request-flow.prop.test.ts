import { batonError } from "@baton/domain";
import {
  type FlowEffect,
  type FlowEvent,
  type FlowOptions,
  type Offer,
  RequestFlow,
} from "@baton/request-flow";
import fc from "fast-check";
import t from "tap";

const address = (workerId: string) => ({
  workerId,
  incarnation: "1",
  url: `http://${workerId}`,
  dialect: "vllm" as const,
  dpRank: null,
});
const offer = (workerId: string, over: Partial<Offer> = {}): Offer => ({
  worker: address(workerId),
  isAggregated: false,
  connector: "nixl-pull",
  blockSizeTokens: 16,
  predictedWaitMs: 0,
  predictedPrefillMs: 100,
  ...over,
});
const options: FlowOptions = {
  unsplittable: null,
  attemptsMax: 2,
  drainMsMax: 500,
  abandonMsMax: 2_000,
};
const newFlow = (over: Partial<FlowOptions> = {}) => new RequestFlow({ ...options, ...over });
const fault = batonError("BATON_ENGINE_FAILED", "500 from p0");

/** Runs events in order and gives all effects, as readable words. */
function run(flow: RequestFlow, ...events: [FlowEvent, number?][]): FlowEffect[] {
  return events.flatMap(([event, nowMs]) => flow.step(event, nowMs ?? 0));
}
const kinds = (effects: FlowEffect[]) =>
  effects.map((each) => (each.kind === "report" ? `report ${each.stage.kind}` : each.kind));

const start: FlowEvent = { kind: "start" };
const placed = (attempt = 1, ...offers: Offer[]): FlowEvent => ({
  kind: "placed",
  attempt,
  offers: offers.length > 0 ? offers : [offer("p0"), offer("p1")],
});
const reserved = (attempt = 1, prefill: string | null = "p0"): FlowEvent => ({
  kind: "reserved",
  attempt,
  prefill: prefill === null ? null : { workerId: prefill, incarnation: "1" },
  decode: address("d0"),
  connector: "nixl-pull",
});
const answered = (attempt = 1): FlowEvent => ({
  kind: "prefill-answered",
  attempt,
  legMs: 90,
  cachedTokens: 32,
  promptTokens: 100,
});
const claimed = (attempt = 1): FlowEvent => ({ kind: "claimed", attempt });
const started = (attempt = 1): FlowEvent => ({ kind: "decode-started", attempt, legMs: 10 });
const ended = (attempt = 1): FlowEvent => ({ kind: "decode-ended", attempt, outputTokens: 7 });
const closed: FlowEvent = { kind: "client-closed" };
const prefillFailed = (attempt = 1): FlowEvent => ({
  kind: "prefill-failed",
  attempt,
  error: fault,
  isWorkerFault: true,
});
const decodeFailed = (attempt = 1): FlowEvent => ({
  kind: "decode-failed",
  attempt,
  error: fault,
  isWorkerFault: true,
});

t.test("a request goes through both legs and ends once", async (t) => {
  const effects = run(
    newFlow(),
    [start],
    [placed()],
    [reserved()],
    [answered()],
    [claimed()],
    [started()],
    [ended()],
  );
  t.same(kinds(effects), [
    "place",
    "reserve",
    "send-prefill",
    "report prefilled",
    "claim",
    "send-decode",
    "report first-byte",
    "relay",
    "report ended",
    "over",
  ]);
  t.match(effects.at(-2), { stage: { end: "done", outputTokens: 7 } });
});

t.test("a decode side that takes another offer moves the charge", async (t) => {
  const effects = run(newFlow(), [start], [placed()], [reserved(1, "p1")]);
  t.match(effects.slice(-2), [
    { stage: { kind: "moved", prefill: { workerId: "p1" } } },
    { kind: "send-prefill", plan: { prefill: { workerId: "p1" } } },
  ]);
});

t.test(
  "a decode worker that prefills itself gives the bind back, an aggregated one keeps it",
  async (t) => {
    t.same(kinds(run(newFlow(), [start], [placed()], [reserved(1, null)])).slice(-2), [
      "report returned",
      "send-decode",
    ]);
    const aggregated = placed(1, offer("b0", { isAggregated: true }));
    t.same(kinds(run(newFlow(), [start], [aggregated], [reserved(1, null)])).slice(-1), [
      "send-decode",
    ]);
  },
);

t.test("a request that cannot be split asks only the decode side", async (t) => {
  t.match(run(newFlow({ unsplittable: "n is 2" }), [start]), [{ kind: "reserve", offers: [] }]);
});

t.test(
  "a prefill that fails before its answer is planned again once, elsewhere, as a new attempt",
  async (t) => {
    const flow = newFlow();
    const first = run(flow, [start], [placed()], [reserved()], [prefillFailed()]);
    t.same(kinds(first).slice(-3), ["report prefill-failed", "report ended", "place"]);
    t.match(first.at(-1), { attempt: 2, excluded: ["p0"] });
    t.match(first.at(-2), { attempt: 1, stage: { end: "retried" } });
    t.same(
      run(flow, [prefillFailed(1)], [answered(1)]),
      [],
      "late news of the first attempt changes nothing",
    );
    const second = run(flow, [placed(2, offer("p1"))], [reserved(2, "p1")], [prefillFailed(2)]);
    t.same(kinds(second).slice(-4), ["report prefill-failed", "respond", "report ended", "over"]);
  },
);

t.test("with nobody left for a second attempt the client hears why the first failed", async (t) => {
  const flow = newFlow();
  run(flow, [start], [placed()], [reserved()], [prefillFailed()]);
  const nobody = batonError("BATON_NO_PREFILL_WORKER", "p0 failed this request before");
  const effects = run(flow, [{ kind: "place-failed", attempt: 2, error: nobody }]);
  t.match(effects[0], { kind: "respond", error: fault });
  const first = run(newFlow(), [start], [{ kind: "place-failed", attempt: 1, error: nobody }]);
  t.match(first[1], { kind: "respond", error: nobody });
});

t.test(
  "a refused handle or a decode leg that fails before its first byte prefills again",
  async (t) => {
    const refused = run(
      newFlow(),
      [start],
      [placed()],
      [reserved()],
      [answered()],
      [{ kind: "claim-refused", attempt: 1, reason: "expired" }],
    );
    t.match(refused.at(-1), { kind: "place", attempt: 2 });
    const failed = run(
      newFlow(),
      [start],
      [placed()],
      [reserved()],
      [answered()],
      [claimed()],
      [decodeFailed()],
    );
    t.match(failed.at(-1), { kind: "place", attempt: 2, excluded: ["d0"] });
  },
);

t.test("a stream that breaks says so and is never replayed", async (t) => {
  const effects = run(
    newFlow(),
    [start],
    [placed()],
    [reserved()],
    [answered()],
    [claimed()],
    [started()],
    [decodeFailed()],
  );
  t.same(kinds(effects).slice(-3), ["break", "report ended", "over"]);
  t.match(effects.at(-2), { stage: { end: "failed", workerFault: true } });
});

t.test("an engine's refusal is passed on and blames nobody", async (t) => {
  for (const at of ["prefill-rejected", "decode-rejected"] as const) {
    const before = at === "prefill-rejected" ? [] : ([[answered()], [claimed()]] as [FlowEvent][]);
    const effects = run(newFlow(), [start], [placed()], [reserved()], ...before, [
      { kind: at, attempt: 1 },
    ]);
    t.same(kinds(effects).slice(-3), ["pass-refusal", "report ended", "over"]);
    t.match(effects.at(-2), { stage: { workerFault: false } });
  }
});

t.test("a client that leaves before the prefill is sent costs nothing", async (t) => {
  t.same(kinds(run(newFlow(), [start], [closed], [placed()])), ["place", "report ended", "over"]);
  t.same(kinds(run(newFlow(), [start], [placed()], [closed], [reserved()])).slice(-2), [
    "report ended",
    "over",
  ]);
});

t.test(
  "a long prefill is aborted when its client leaves, a nearly done one is finished and freed",
  async (t) => {
    const long = run(
      newFlow(),
      [start],
      [placed(1, offer("p0", { predictedPrefillMs: 5_000 }))],
      [reserved()],
      [closed, 1_000],
    );
    t.same(kinds(long).slice(-4), [
      "abort-prefill",
      "report prefill-failed",
      "report ended",
      "over",
    ]);
    const flow = newFlow();
    const near = run(flow, [start], [placed()], [reserved()], [closed, 50]);
    t.match(near.at(-1), { kind: "wait" });
    t.same(kinds(run(flow, [answered()], [claimed()], [started()])), [
      "report prefilled",
      "claim",
      "send-abandon",
      "wait",
      "report first-byte",
      "abort-decode",
      "report ended",
      "over",
    ]);
  },
);

t.test(
  "a client that leaves between the legs still sends the decode leg and closes it",
  async (t) => {
    const effects = run(
      newFlow(),
      [start],
      [placed()],
      [reserved()],
      [answered()],
      [closed],
      [claimed()],
    );
    t.same(kinds(effects).slice(-2), ["send-abandon", "wait"]);
  },
);

t.test(
  "a client that leaves while the pull runs lets it run until its first byte, within bounds",
  async (t) => {
    const flow = newFlow();
    run(flow, [start], [placed()], [reserved()], [answered()], [claimed()]);
    t.same(kinds(run(flow, [closed])), ["wait"]);
    t.same(kinds(run(flow, [{ kind: "waited" }])), ["abort-decode", "report ended", "over"]);
  },
);

t.test("the deadline answers once and then cleans up like a client that left", async (t) => {
  const flow = newFlow();
  const effects = run(
    flow,
    [start],
    [placed()],
    [reserved()],
    [{ kind: "deadline" }, 0],
    [answered()],
    [claimed()],
    [started()],
  );
  t.equal(kinds(effects).filter((each) => each === "respond").length, 1);
  t.match(effects.at(-1), { kind: "over", end: "failed", code: "BATON_DEADLINE" });
});

t.test("whatever happens in whatever order, the promises of a request hold", async (t) => {
  const attempt = fc.integer({ min: 1, max: 3 });
  const event: fc.Arbitrary<FlowEvent> = fc.oneof(
    fc.constant(closed),
    fc.constant<FlowEvent>({ kind: "deadline" }),
    fc.constant<FlowEvent>({ kind: "waited" }),
    attempt.map((n) => placed(n)),
    attempt.map((n): FlowEvent => ({ kind: "place-failed", attempt: n, error: fault })),
    fc
      .tuple(attempt, fc.constantFrom("p0", "p1", null))
      .map(([n, prefill]) => reserved(n, prefill)),
    attempt.map(
      (n): FlowEvent => ({
        kind: "reserve-failed",
        attempt: n,
        error: batonError("BATON_BUS_DEADLINE", "late"),
      }),
    ),
    attempt.map(answered),
    attempt.map((n): FlowEvent => ({ kind: "prefill-rejected", attempt: n })),
    attempt.map(prefillFailed),
    attempt.map(claimed),
    attempt.map((n): FlowEvent => ({ kind: "claim-refused", attempt: n, reason: "used" })),
    attempt.map(started),
    attempt.map((n): FlowEvent => ({ kind: "decode-rejected", attempt: n })),
    attempt.map(decodeFailed),
    attempt.map(ended),
  );
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), fc.boolean(), (events, splits) => {
      const flow = newFlow({ unsplittable: splits ? null : "n is 2" });
      const effects = run(
        flow,
        [start],
        ...events.map((each, at): [FlowEvent, number] => [each, at * 20]),
      );
      const count = (kind: string) => kinds(effects).filter((each) => each === kind).length;
      const isOver = flow.state === "over";
      if (count("over") !== (isOver ? 1 : 0) || (isOver && effects.at(-1)!.kind !== "over"))
        return false;
      const answers = count("respond") + count("pass-refusal") + count("relay");
      if (answers > 1 || count("break") > count("relay")) return false;
      for (let n = 1; n <= 2; n++) {
        const of = effects.filter((each) => "attempt" in each && each.attempt === n);
        const words = kinds(of);
        const endings = words.filter((each) => each === "report ended").length;
        const begun = words.includes("place") || words.includes("reserve");
        const isPast = begun && (isOver || flow.attempt > n);
        if (endings !== (isPast ? 1 : 0)) return false;
        const presented = words.filter(
          (each) => each === "send-decode" || each === "send-abandon",
        ).length;
        if (presented > 1 || words.filter((each) => each === "claim").length > 1) return false;
        const legDone = words.indexOf("report ended");
        const after = words.slice(legDone + 1).filter((each) => !["pass-refusal"].includes(each));
        if (legDone >= 0 && after.length > 0) return false;
      }
      return flow.attempt <= 2;
    }),
    { numRuns: 5_000 },
  );
  t.pass();
});
