import { Prng } from "@baton/kit";
import fc from "fast-check";
import t from "tap";
import { type FeedEffect, type FeedEvent, FeedMachine, kvFeedLimitsDefault } from "../src/index.ts";
import { type EngineMessage, FakeLife } from "./fake-engine.ts";

/** What a sink would hold, checked with every effect. */
class Applied {
  readonly machine: FeedMachine;
  /** `life * 1e6 + n` of each batch since the last reset. */
  times: number[] = [];
  sequences: bigint[] = [];
  resets = 0;
  states: string[] = ["init"];
  asked: { attempt: number; from: bigint } | null = null;
  hasGap = false;

  constructor(machine: FeedMachine) {
    this.machine = machine;
  }

  feed(event: FeedEvent, nowMs: number): readonly FeedEffect[] {
    const effects = this.machine.apply(event, nowMs);
    for (const effect of effects) this.#take(effect);
    return effects;
  }

  #take(effect: FeedEffect): void {
    if (effect.kind === "batch") {
      const last = this.sequences.at(-1);
      if (last !== undefined && effect.sequence <= last)
        throw new Error(`${effect.sequence} again`);
      if (last !== undefined && effect.sequence !== last + 1n) this.hasGap = true;
      this.times.push(effect.batch.engineTimeS);
      this.sequences.push(effect.sequence);
    } else if (effect.kind === "reset") {
      this.times = [];
      this.sequences = [];
      this.hasGap = false;
      this.resets += 1;
    } else if (effect.kind === "state") this.states.push(effect.state);
    else if (effect.kind === "ask") this.asked = effect;
    else if (effect.kind === "stop" && this.asked?.attempt === effect.attempt) this.asked = null;
    else if (effect.kind === "undecodable")
      throw new Error("the fake engine writes whole payloads");
  }
}

interface WorldOptions {
  readonly hasReplay: boolean;
  readonly countsFromClock: boolean;
  readonly ringMax: number;
  readonly heldMessagesMax: number;
  readonly dropRatio: number;
  readonly stepCount: number;
}

/**
 * An engine, three pipes and a clock. Each pipe keeps its order, none keeps pace with another, so a
 * message may overtake the news of its connection.
 */
class World {
  readonly #prng: Prng;
  readonly #options: WorldOptions;
  readonly applied: Applied;
  life: FakeLife;
  #lives = 0;
  #nowMs = 0;
  #dropRatio: number;
  #isSubscribed = false;
  #live: EngineMessage[] = [];
  #news: ("connected" | "disconnected")[] = [];
  /** Null until the engine serves the request. */
  #answer: { attempt: number; messages: (EngineMessage | "end")[] } | null = null;

  constructor(prng: Prng, options: WorldOptions) {
    this.#prng = prng;
    this.#options = options;
    this.#dropRatio = options.dropRatio;
    const { hasReplay, heldMessagesMax } = options;
    const limits = { ...kvFeedLimitsDefault, heldMessagesMax };
    this.applied = new Applied(new FeedMachine({ hasReplay, limits }));
    this.life = this.#newLife();
    for (let early = prng.below(2 * options.ringMax); early > 0; early--) this.life.publish();
  }

  step(): void {
    const draw = this.#prng.below(100);
    if (draw < 30) this.publish();
    else if (draw < 55) this.#passLive();
    else if (draw < 65) this.#passNews();
    else if (draw < 75) this.#serve();
    else if (draw < 90) this.#passAnswer();
    else if (draw < 94) this.#sleep(this.#prng.below(1500));
    else if (draw < 96) this.#connect();
    else if (draw < 98) this.#disconnect();
    else if (draw < 99) this.#restart();
    else this.#sleep(this.#prng.below(40_000));
  }

  publish(): void {
    const isFirst = this.life.published === 0;
    const message = this.life.publish(
      isFirst && this.#options.countsFromClock ? [{ kind: "cleared" }] : [],
    );
    if (!this.#isSubscribed || this.#isLost()) return;
    this.#live.push(message);
    if (this.#prng.next() < this.#dropRatio / 2) this.#live.push(message);
  }

  /** From here on nothing is lost; long enough for every cool-down and probe. */
  quiesce(): void {
    this.#dropRatio = 0;
    this.#connect();
    for (const untilMs = this.#nowMs + 400_000; this.#nowMs < untilMs; ) {
      for (let pass = 0; pass < 60 + this.life.ring.length * 3; pass++) {
        this.#passNews();
        this.#passLive();
        this.#serve();
        this.#passAnswer();
      }
      const deadlineMs = this.applied.machine.deadlineMs ?? untilMs;
      this.#sleep(Math.max(1, Math.min(deadlineMs, untilMs) - this.#nowMs));
    }
  }

  #isLost(): boolean {
    return this.#prng.next() < this.#dropRatio;
  }

  #passLive(): void {
    const message = this.#live.shift();
    if (message === undefined) return;
    this.applied.feed({ kind: "live", ...message, epoch: null }, this.#nowMs);
    this.#startAsked();
  }

  #passNews(): void {
    const kind = this.#news.shift();
    if (kind === undefined) return;
    // Only a replay can tell what a dead engine left in our socket, so without one it comes first.
    if (!this.#options.hasReplay) while (this.#live.length > 0) this.#passLive();
    this.applied.feed({ kind }, this.#nowMs);
    this.#startAsked();
  }

  #startAsked(): void {
    const asked = this.applied.asked;
    if (asked === null || asked.attempt === this.#answer?.attempt) return;
    this.applied.feed({ kind: "replay-started", attempt: asked.attempt }, this.#nowMs);
  }

  #serve(): void {
    const asked = this.applied.asked;
    if (asked === null || asked.attempt === this.#answer?.attempt) return;
    const messages: (EngineMessage | "end")[] = this.life.from(asked.from);
    messages.push("end");
    // A full pipe loses what comes late, never the head; a dead peer loses all.
    const kept = messages.filter((_, index) => index === 0 || !this.#isLost());
    this.#answer = { attempt: asked.attempt, messages: this.#isLost() ? [] : kept };
  }

  #passAnswer(): void {
    const attempt = this.#answer?.attempt;
    const message = this.#answer?.messages.shift();
    if (attempt === undefined || message === undefined) return;
    if (message === "end") this.applied.feed({ kind: "replay-end", attempt }, this.#nowMs);
    else this.applied.feed({ kind: "replay-batch", attempt, ...message }, this.#nowMs);
    this.#startAsked();
  }

  #sleep(byMs: number): void {
    this.#nowMs += byMs;
    this.applied.feed({ kind: "tick" }, this.#nowMs);
    this.#startAsked();
  }

  #connect(): void {
    if (this.#isSubscribed) return;
    this.#isSubscribed = true;
    this.#news.push("connected");
  }

  #disconnect(): void {
    if (!this.#isSubscribed) return;
    this.#isSubscribed = false;
    this.#news.push("disconnected");
    if (this.#answer !== null) this.#answer.messages = [];
  }

  #restart(): void {
    this.#disconnect();
    this.life = this.#newLife();
  }

  #newLife(): FakeLife {
    this.#lives += 1;
    const start = this.#options.countsFromClock ? BigInt(this.#lives) * 1_000_000_000_000n : 0n;
    return new FakeLife(this.#lives, { start, ringMax: this.#options.ringMax });
  }
}

const worldOptions = {
  countsFromClock: fc.boolean(),
  ringMax: fc.constantFrom(3, 40, 10_000),
  heldMessagesMax: fc.constantFrom(2, 20, 10_000),
  dropRatio: fc.constantFrom(0, 0.05, 0.3),
  stepCount: fc.integer({ min: 0, max: 600 }),
};

t.test("with replay, any losses, restarts and delays end in exactly what the engine has", (t) => {
  let resets = 0;
  fc.assert(
    fc.property(fc.nat(), fc.record(worldOptions), fc.boolean(), (seed, draw, isBusy) => {
      const world = new World(new Prng(seed), { ...draw, hasReplay: true });
      for (let step = 0; step < draw.stepCount; step++) world.step();
      if (isBusy) world.publish();
      world.quiesce();
      const { applied, life } = world;
      resets += applied.resets;
      if (applied.machine.state !== "live") throw new Error(`ends ${applied.machine.state}`);
      if (applied.hasGap) throw new Error(`a gap in ${applied.sequences}`);
      const first = applied.times[0] ?? life.life * 1e6 + life.published;
      const oldest = life.ring[0]?.sequence ?? life.start;
      if (first - life.life * 1e6 > Number(oldest - life.start)) throw new Error("starts too late");
      const expected = Array.from(
        { length: life.life * 1e6 + life.published - first },
        (_, index) => first + index,
      );
      if (String(applied.times) !== String(expected)) {
        throw new Error(`holds ${applied.times}, the engine ${expected}`);
      }
    }),
    { numRuns: 250 },
  );
  t.ok(resets > 20, `the runs did reset: ${resets}`);
  t.end();
});

t.test("without replay nothing of a dead life stays, and a gap makes the feed lossy", (t) => {
  let lossy = 0;
  fc.assert(
    fc.property(fc.nat(), fc.record(worldOptions), (seed, draw) => {
      const world = new World(new Prng(seed), { ...draw, hasReplay: false });
      for (let step = 0; step < draw.stepCount; step++) world.step();
      world.quiesce();
      world.publish();
      world.quiesce();
      const { applied, life } = world;
      const isLossy = applied.machine.state === "lossy";
      if (isLossy) lossy += 1;
      if (applied.hasGap && !isLossy) throw new Error("a gap that is not told");
      if (applied.times.some((time) => time < life.life * 1e6))
        throw new Error("a dead life stays");
      const newest = life.life * 1e6 + life.published - 1;
      if (applied.times.at(-1) !== newest) throw new Error("the newest message is not applied");
    }),
    { numRuns: 500 },
  );
  t.ok(lossy > 5, `some were lossy: ${lossy}`);
  t.end();
});

/** A machine with replay, connected, that has applied the `count` messages of `life`. */
function liveMachine(life: FakeLife, count: number): Applied {
  const machine = new FeedMachine({ hasReplay: true, limits: kvFeedLimitsDefault });
  const applied = new Applied(machine);
  applied.feed({ kind: "connected" }, 0);
  for (let index = 0; index < count; index++) life.publish();
  answer(applied, life, 0);
  return applied;
}

/** Serves what the machine asked for last, as the engine would. */
function answer(applied: Applied, life: FakeLife, nowMs: number): void {
  const { attempt, from } = applied.asked ?? { attempt: 0, from: 0n };
  applied.feed({ kind: "replay-started", attempt }, nowMs);
  for (const message of life.from(from)) {
    applied.feed({ kind: "replay-batch", attempt, ...message }, nowMs);
  }
  applied.feed({ kind: "replay-end", attempt }, nowMs);
}

function live(message: EngineMessage, epoch: string | null = null): FeedEvent {
  return { kind: "live", ...message, epoch };
}

t.test("an engine that restarted and has counted past us is not taken for a gap", (t) => {
  const old = new FakeLife(1, { start: 0n, ringMax: 100 });
  const applied = liveMachine(old, 5);
  t.equal(applied.machine.state, "live");
  const fresh = new FakeLife(2, { start: 0n, ringMax: 100 });
  for (let index = 0; index < 8; index++) fresh.publish();
  // The news of the new connection is late: the first sign is a message that looks like a gap.
  applied.feed(live(fresh.publish()), 10);
  t.equal(applied.asked?.from, 4n, "asked from the last one we have");
  answer(applied, fresh, 20);
  t.equal(applied.resets, 1);
  answer(applied, fresh, 30);
  t.strictSame(
    applied.times,
    Array.from({ length: 9 }, (_, index) => 2e6 + index),
  );
  t.strictSame(applied.states.slice(-3), ["reset", "replay", "live"]);
  t.end();
});

t.test("one that goes on at our very number is found by an older message", (t) => {
  const applied = liveMachine(new FakeLife(1, { start: 0n, ringMax: 100 }), 5);
  const fresh = new FakeLife(2, { start: 0n, ringMax: 100 });
  for (let index = 0; index < 5; index++) fresh.publish();
  applied.feed(live(fresh.publish()), 10);
  t.strictSame(applied.times.at(-1), 2e6 + 5, "nothing to be seen yet");
  applied.feed({ kind: "disconnected" }, 11);
  applied.feed({ kind: "connected" }, 12);
  answer(applied, fresh, 13);
  answer(applied, fresh, 14);
  t.strictSame(
    applied.times,
    Array.from({ length: 6 }, (_, index) => 2e6 + index),
  );
  t.end();
});

t.test(
  "a replay that is not answered ends in a lossy feed, which heals after the cool-down",
  (t) => {
    const life = new FakeLife(1, { start: 0n, ringMax: 100 });
    const applied = liveMachine(life, 5);
    life.publish();
    applied.feed(live(life.publish()), 1000);
    t.equal(applied.machine.state, "replay");
    let nowMs = 1000;
    for (let attempt = 0; attempt < 3; attempt++) {
      applied.feed({ kind: "replay-started", attempt: applied.asked!.attempt }, nowMs);
      t.equal(applied.machine.deadlineMs, nowMs + 2000);
      applied.feed({ kind: "tick" }, nowMs + 1999);
      t.equal(applied.machine.state, "replay", "an early tick does nothing");
      nowMs += 2000;
      applied.feed({ kind: "tick" }, nowMs);
    }
    t.equal(applied.machine.state, "lossy");
    t.equal(applied.asked, null);
    t.equal(applied.times.at(-1), 1e6 + 6, "what had waited is given");
    applied.feed(live(life.publish()), nowMs + 1);
    t.equal(applied.times.at(-1), 1e6 + 7, "and what comes is");
    t.equal(applied.machine.deadlineMs, nowMs + 30_000);
    applied.feed({ kind: "tick" }, nowMs + 30_000);
    t.equal(applied.machine.state, "lossy", "nothing is thrown away before the engine answers");
    t.equal(applied.resets, 0);
    answer(applied, life, nowMs + 30_001);
    t.equal(applied.machine.state, "live");
    t.equal(applied.resets, 1);
    t.strictSame(
      applied.times,
      Array.from({ length: 8 }, (_, index) => 1e6 + index),
    );
    t.end();
  },
);

t.test("a replay that never ends is left after two minutes", (t) => {
  const life = new FakeLife(1, { start: 0n, ringMax: 10_000 });
  const applied = liveMachine(life, 1);
  life.publish();
  applied.feed(live(life.publish()), 0);
  const attempt = applied.asked!.attempt;
  applied.feed({ kind: "replay-started", attempt }, 0);
  let nowMs = 0;
  const again = life.from(0n)[0]!;
  while (applied.machine.state === "replay" && nowMs < 300_000) {
    applied.feed({ kind: "replay-batch", attempt, ...again }, nowMs);
    nowMs += 1_000;
    applied.feed({ kind: "tick" }, nowMs);
  }
  t.equal(applied.machine.state, "lossy");
  t.equal(nowMs, 120_000);
  t.end();
});

t.test("an engine that answers no probe stays live, and another epoch is another life", (t) => {
  const life = new FakeLife(1, { start: 0n, ringMax: 100 });
  const applied = liveMachine(life, 3);
  t.equal(applied.machine.deadlineMs, kvFeedLimitsDefault.probeFirstMs);
  applied.feed({ kind: "tick" }, 1000);
  applied.feed({ kind: "replay-started", attempt: applied.asked!.attempt }, 1000);
  applied.feed({ kind: "tick" }, 3000);
  t.equal(applied.machine.state, "live");
  t.equal(applied.machine.deadlineMs, 33_000, "the next is due after a silence");
  applied.feed(live(life.publish(), "e1"), 20_000);
  applied.feed({ kind: "tick" }, 33_000);
  t.equal(applied.asked, null, "there was no silence");
  t.equal(applied.machine.deadlineMs, 50_000);
  t.strictSame(applied.states, ["init", "subscribed", "replay", "live"]);
  applied.feed(live(life.publish(), "e2"), 40_000);
  t.equal(applied.resets, 1);
  t.equal(applied.machine.state, "replay");
  t.end();
});
