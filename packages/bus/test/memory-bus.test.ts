import assert from "node:assert/strict";
import { ManualClock } from "@baton/kit/testing";
import { ManualTimers } from "@baton/ports/testing";
import fc from "fast-check";
import t from "tap";
import { createMemoryBus } from "../src/index.ts";
import { Inlet, Lane } from "../src/inlet.ts";
import { matchTokens } from "../src/subject.ts";
import { testLifecycle } from "./contract-lifecycle.ts";
import { testPublications } from "./contract-publications.ts";
import { testRequests } from "./contract-requests.ts";
import { bytes, type Harness, longMs, text } from "./harness.ts";

const memory = createMemoryBus();
const harness: Harness = {
  connect: (options) => Promise.resolve(memory.connect(options)),
  interrupt: async () => memory.interrupt(),
  resume: async () => memory.resume(),
};

t.test("the bus contract, requests", async (t) => testRequests(t, harness));
t.test("the bus contract, publications", async (t) => testPublications(t, harness));
t.test("the bus contract, lifecycle", async (t) => testLifecycle(t, harness));

t.test("members of a queue take turns, for each subject anew", async (t) => {
  const hub = createMemoryBus();
  const asked: string[] = [];
  for (const name of ["a", "b", "c"]) {
    for (const subject of ["reserve", "handle"]) {
      hub.connect({ name }).serve(subject, { queue: "decode" }, ({ payload }) => {
        asked.push(`${name} ${subject}`);
        return payload;
      });
    }
  }
  const client = hub.connect();
  for (let index = 0; index < 8; index++) {
    const subject = index % 2 === 0 ? "reserve" : "handle";
    await client.request(subject, bytes("?"), { deadlineMs: longMs });
  }
  const turns = ["a", "b", "c", "a"].flatMap((name) => [`${name} reserve`, `${name} handle`]);
  t.strictSame(asked, turns);
});

t.test("with manual timers a deadline passes when the clock says so", async (t) => {
  const clock = new ManualClock();
  const timers = new ManualTimers(clock);
  const bus = createMemoryBus({ timers }).connect();
  bus.serve("slow", { queue: "q" }, () => new Promise<never>(() => {}));
  let code = "none";
  const asked = bus.request("slow", bytes("?"), { deadlineMs: 50 }).then((answer) => {
    code = answer.ok ? "answered" : answer.error.code;
  });
  timers.advance(49);
  await Promise.resolve();
  t.equal(code, "none");
  timers.advance(1);
  await asked;
  t.equal(code, "BATON_BUS_DEADLINE");
  t.equal(timers.pending, 0);
});

t.test("with manual timers a long queue is handed out in batches, a turn each", async (t) => {
  const timers = new ManualTimers(new ManualClock());
  const bus = createMemoryBus({ timers }).connect();
  const seen: number[] = [];
  bus.subscribe("many", {}, ({ payload }) => seen.push(Number(text(payload))));
  for (let index = 0; index < 300; index++) bus.publish("many", bytes(`${index}`));
  t.equal(seen.length, 0);
  await Promise.resolve();
  t.ok(seen.length > 0 && seen.length < 300, "a first batch");
  for (let turns = 0; turns < 5; turns++) timers.advance(0);
  t.strictSame(
    seen,
    Array.from({ length: 300 }, (_, index) => index),
  );
});

t.test("a slow consumer is said once per fall", async (t) => {
  const totals: number[] = [];
  const bus = createMemoryBus({ limits: { pendingMessagesMax: 4 } }).connect({
    onSlowConsumer: ({ droppedTotal }) => totals.push(droppedTotal),
  });
  let seen = "";
  bus.subscribe("x", { queue: "q" }, ({ payload }) => {
    seen += text(payload);
  });
  for (const letter of "abcdefg") bus.publish("x", bytes(letter));
  await new Promise(setImmediate);
  for (const letter of "hijklm") bus.publish("x", bytes(letter));
  await new Promise(setImmediate);
  t.equal(seen, "defgjklm");
  t.strictSame(totals, [3, 5]);
});

t.test("a client that connects while the hub is interrupted begins as reconnecting", async (t) => {
  const hub = createMemoryBus();
  hub.interrupt();
  const bus = hub.connect();
  t.equal(bus.state(), "reconnecting");
  hub.resume();
  t.equal(bus.state(), "connected");
});

t.test("wildcards match as a regular expression made from the pattern does", async (t) => {
  const token = fc.constantFrom("a", "b", "c");
  const subjects = fc.array(token, { minLength: 1, maxLength: 4 });
  const heads = fc.array(fc.oneof(token, fc.constant("*")), { maxLength: 4 });
  const tails = fc.constantFrom([], [">"]);
  const patterns = fc.tuple(heads, tails).map((parts) => parts.flat());
  const property = fc.property(patterns, subjects, (pattern, subject) => {
    fc.pre(pattern.length > 0);
    const source = pattern.join("\\.").replaceAll("*", "[^.]+").replace(/>$/, ".+");
    const expected = new RegExp(`^${source}$`).test(subject.join("."));
    return matchTokens(pattern, subject) === expected;
  });
  t.doesNotThrow(() => fc.assert(property, { numRuns: 2000 }));
});

t.test("the inlet hands out what a plain list would, in the same order", async (t) => {
  const lane = fc.nat({ max: 2 });
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.record({ kind: fc.constant("push" as const), lane }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("dropOldest" as const), lane }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("clear" as const), lane }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant("turn" as const), lane }) },
  );
  const steps = fc.array(step, { maxLength: 400 });
  const property = fc.asyncProperty(steps, async (steps) => {
    const timers = new ManualTimers(new ManualClock());
    const inlet = new Inlet(timers, () => {});
    const seen: string[] = [];
    const lanes = [0, 1, 2].map((lane) => new Lane((subject) => seen.push(`${lane} ${subject}`)));
    const expected: string[] = [];
    let model: { lane: number; subject: string }[] = [];
    for (const [index, { kind, lane }] of steps.entries()) {
      if (kind === "push") {
        inlet.push(lanes[lane]!, String(index), new Uint8Array(lane), null);
        model.push({ lane, subject: String(index) });
      } else if (kind === "dropOldest") {
        inlet.dropOldest(lanes[lane]!);
        const oldest = model.findIndex((each) => each.lane === lane);
        if (oldest >= 0) model.splice(oldest, 1);
      } else if (kind === "clear") {
        inlet.clear(lanes[lane]!);
        model = model.filter((each) => each.lane !== lane);
      } else {
        await Promise.resolve();
        while (inlet.messages > 0) timers.advance(0);
        expected.push(...model.map((each) => `${each.lane} ${each.subject}`));
        model = [];
      }
      const held = (lane: number) => model.filter((each) => each.lane === lane).length;
      assert.deepEqual(
        [...lanes.map(({ messages }) => messages), inlet.messages, lanes[2]!.bytes],
        [held(0), held(1), held(2), model.length, 2 * held(2)],
      );
    }
    assert.deepEqual(seen, expected);
  });
  await t.resolves(fc.assert(property, { numRuns: 200 }));
});
