import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import type { KvBatch } from "@baton/domain";
import {
  encodeKvBatch,
  liveFrames,
  parseReplayRequest,
  replayEndFrames,
  replayFrames,
} from "@baton/kv-events";
import {
  createKvPublisher,
  createZmqKvEventSource,
  type KvFeedLimits,
  type KvPublisher,
  type KvPublisherOptions,
} from "@baton/kv-feed";
import type { Clock, KvEventSource, KvFeed, Timers } from "@baton/ports";
import { MemoryLogger } from "@baton/ports/testing";
import t, { type Test } from "tap";
import { Dealer, Publisher, Router } from "zeromq";
import { ReplaySlots } from "../src/replay-slots.ts";

const clock: Clock = { nowMs: () => performance.now(), wallMs: () => Date.now() };
const timers: Timers = {
  after(delayMs, callback) {
    const timer = globalThis.setTimeout(callback, delayMs);
    return { cancel: () => clearTimeout(timer) };
  },
  every: () => {
    throw new Error("no feed needs an interval");
  },
};

/** A batch that says which one it is. */
function payload(engineTimeS: number): Uint8Array {
  return encodeKvBatch({ engineTimeS, dpRank: 0, events: [{ kind: "cleared" }], form: "map" });
}

/** What a service would know: batches since the last reset. */
class Sink {
  times: number[] = [];
  sequences: bigint[] = [];
  resets: string[] = [];
  states: string[] = [];

  onBatch(batch: KvBatch, sequence: bigint): void {
    this.times.push(batch.engineTimeS);
    this.sequences.push(sequence);
  }

  onReset(reason: string): void {
    this.times = [];
    this.sequences = [];
    this.resets.push(reason);
  }

  onState(state: string): void {
    this.states.push(state);
  }
}

interface Rig {
  readonly logger: MemoryLogger;
  readonly source: KvEventSource;
  open(endpoint: string, replayEndpoint: string | null): { sink: Sink; feed: KvFeed };
}

function makeRig(t: Test, limits: Partial<KvFeedLimits> = {}, replaysMax = 8): Rig {
  const logger = new MemoryLogger();
  const source = createZmqKvEventSource({ clock, timers, logger, limits, replaysMax });
  t.teardown(() => source.close());
  return {
    logger,
    source,
    open(endpoint, replayEndpoint) {
      const sink = new Sink();
      const feed = source.open({ workerId: "w1", endpoint, replayEndpoint }, sink);
      return { sink, feed };
    },
  };
}

async function makePublisher(
  t: Test,
  options: Partial<KvPublisherOptions> = {},
): Promise<KvPublisher & { readonly replayEndpoint: string }> {
  const publisher = await createKvPublisher({
    endpoint: "tcp://127.0.0.1:0",
    replayEndpoint: "tcp://127.0.0.1:0",
    topic: "kv@w1@tiny",
    logger: new MemoryLogger(),
    ...options,
  });
  t.teardown(() => publisher.close());
  return publisher as KvPublisher & { readonly replayEndpoint: string };
}

async function until(what: string, condition: () => boolean): Promise<void> {
  const deadlineMs = performance.now() + 20_000;
  while (!condition()) {
    if (performance.now() > deadlineMs) throw new Error(`waited in vain: ${what}`);
    await setTimeout(2);
  }
}

function upTo(count: number, start = 0): number[] {
  return Array.from({ length: count }, (_, index) => start + index);
}

t.test("a late subscriber gets everything, from replays of either form", async (t) => {
  for (const replayForm of ["topic", "plain"] as const) {
    const publisher = await makePublisher(t, { replayForm });
    for (const time of upTo(300)) publisher.publish(payload(time));
    const { sink, feed } = makeRig(t).open(publisher.endpoint, publisher.replayEndpoint);
    await until("live", () => feed.state() === "live");
    for (const time of upTo(200, 300)) publisher.publish(payload(time));
    await until("all batches", () => sink.times.length === 500);
    t.strictSame(sink.times, upTo(500), replayForm);
    t.strictSame(sink.sequences, upTo(500).map(BigInt));
    t.strictSame(sink.states, ["subscribed", "replay", "live"]);
    t.strictSame(sink.resets, []);
    feed.close();
  }
});

t.test("lost messages are replayed, those at the end of a burst by a probe", async (t) => {
  const publisher = await makePublisher(t, { firstSequence: 1_760_000_000_000_000_000n });
  const limits = { probeFirstMs: 20, probeIdleMs: 40 };
  const { sink, feed } = makeRig(t, limits).open(publisher.endpoint, publisher.replayEndpoint);
  await until("live", () => feed.state() === "live");
  publisher.publish(payload(0));
  await until("the first batch", () => sink.times.length === 1);
  for (const time of upTo(98, 1)) publisher.publish(payload(time), { isLost: time % 7 < 3 });
  publisher.publish(payload(99));
  await until("the burst", () => sink.times.length === 100);
  publisher.publish(payload(100), { isLost: true });
  await until("the lost end", () => sink.times.length === 101);
  t.strictSame(sink.times, upTo(101));
  t.equal(sink.sequences.at(-1), 1_760_000_000_000_000_100n, "sequences stay exact");
  t.strictSame(sink.resets, []);
  await until("live again", () => feed.state() === "live");
});

t.test("an engine that comes back idle on its port voids what it had", async (t) => {
  const first = await makePublisher(t);
  const { sink, feed } = makeRig(t).open(first.endpoint, first.replayEndpoint);
  await until("live", () => feed.state() === "live");
  for (const time of upTo(10)) first.publish(payload(time));
  await until("the first life", () => sink.times.length === 10);
  await first.close();
  await until("the loss is seen", () => feed.state() === "init");
  t.equal(sink.resets.length, 0, "a lost connection alone voids nothing");

  const { endpoint, replayEndpoint } = first;
  const second = await againAt(t, { endpoint, replayEndpoint });
  await until("the reset", () => sink.resets.length === 1);
  await until("live", () => feed.state() === "live");
  t.strictSame(sink.times, []);
  for (const time of upTo(30, 1000)) second.publish(payload(time));
  await until("the second life", () => sink.times.length === 30);
  t.strictSame(sink.times, upTo(30, 1000));
  t.equal(sink.resets.length, 1);
});

/** ZeroMQ frees an address in its own thread, some time after the close. */
async function againAt(t: Test, at: { endpoint: string; replayEndpoint: string }) {
  for (let attempt = 0; ; attempt++) {
    try {
      return await makePublisher(t, at);
    } catch (error) {
      if (attempt > 500) throw error;
      await setTimeout(10);
    }
  }
}

t.test(
  "without a replay endpoint a gap makes the feed lossy, until the engine clears",
  async (t) => {
    const publisher = await makePublisher(t, { replayEndpoint: null });
    t.equal(publisher.replayEndpoint, null);
    const { sink, feed } = makeRig(t).open(publisher.endpoint, null);
    const removal = (time: number) =>
      encodeKvBatch({ engineTimeS: time, dpRank: 0, events: [], form: "map" });
    await until("live", () => feed.state() === "live");
    await until("a first message", () => {
      publisher.publish(removal(0));
      return sink.times.length > 0;
    });
    publisher.publish(removal(1), { isLost: true });
    publisher.publish(removal(2));
    await until("lossy", () => feed.state() === "lossy");
    t.equal(sink.times.at(-1), 2, "what comes is still given");
    t.strictSame(sink.resets, []);
    publisher.publish(payload(3));
    await until("live again", () => feed.state() === "live");
    t.equal(sink.resets.length, 1);
    t.strictSame(sink.times, [3]);
  },
);

t.test(
  "replies that are none are passed over, and a silent engine makes the feed lossy",
  async (t) => {
    const publisher = new Publisher({ linger: 0 });
    const router = new Router({ linger: 0 });
    t.teardown(() => {
      publisher.close();
      router.close();
    });
    await publisher.bind("tcp://127.0.0.1:0");
    await router.bind("tcp://127.0.0.1:0");
    let answers = 0;
    let isSilent = false;
    const serving = (async () => {
      for await (const frames of router) {
        const request = parseReplayRequest(frames);
        if (request === null) throw new Error("a feed asks as engines expect it");
        if (isSilent) continue;
        answers += 1;
        const reply = (parts: Uint8Array[]) => router.send([request.identity, ...parts]);
        await reply([Buffer.from("")]);
        await reply([Buffer.from(""), Buffer.from("short"), payload(7)]);
        await reply([
          Buffer.from("a"),
          Buffer.from("b"),
          Buffer.from("c"),
          Buffer.from("d"),
          payload(7),
        ]);
        await reply(replayFrames("topic", "kv", 4n, payload(4)));
        await reply(replayFrames("plain", "kv", 5n, payload(5)));
        await reply(replayEndFrames("plain"));
        await reply(replayFrames("plain", "kv", 6n, payload(6)));
      }
    })();
    const limits = { replayIdleMs: 20, replayStallsMax: 2, replayCooldownMs: 100_000 };
    const rig = makeRig(t, limits);
    const { sink, feed } = rig.open(publisher.lastEndpoint!, router.lastEndpoint);
    await until("live", () => feed.state() === "live");
    t.strictSame(sink.sequences, [4n, 5n], "after the end marker nothing counts");
    t.equal(answers, 1);
    t.ok(rig.logger.lines.some((line) => line.fields["reason"] === "frame_count"));

    isSilent = true;
    await publisher.send([Buffer.from("kv"), Buffer.from("nonsense")]);
    await publisher.send(liveFrames("kv\0sgl-kv-epoch=1", 9n, payload(9)));
    await until("lossy", () => sink.states.includes("lossy"));
    t.strictSame(sink.sequences, [9n], "a clear is worth more than what was missed");
    await publisher.send(liveFrames("kv", 10n, Buffer.from("c1", "hex")));
    await publisher.send(liveFrames("kv", 11n, payload(11)));
    await until("the message after the broken one", () => sink.sequences.at(-1) === 11n);
    t.ok(rig.logger.lines.some((line) => line.fields["reason"] === "not_a_batch"));
    feed.close();
    router.close();
    await serving;
  },
);

t.test("an engine that dials out is listened for", async (t) => {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as { port: number };
  probe.close();
  const { sink, feed } = makeRig(t).open(`tcp://*:${port}`, null);
  const publisher = new Publisher({ linger: 0, reconnectInterval: 20 });
  t.teardown(() => publisher.close());
  publisher.connect(`tcp://127.0.0.1:${port}`);
  await until("live", () => feed.state() === "live");
  let sequence = 0n;
  while (sink.times.length === 0) {
    await publisher.send(liveFrames("kv", sequence, payload(1)));
    sequence += 1n;
    await setTimeout(5);
  }
  t.ok(sink.times.length > 0);
});

t.test("a flood leaves the event loop its turns", async (t) => {
  const publisher = await makePublisher(t);
  const count = 8_000;
  for (const time of upTo(count)) publisher.publish(payload(time));
  const { sink } = makeRig(t).open(publisher.endpoint, publisher.replayEndpoint);
  let turns = 0;
  let isOver = false;
  const spin = (): void => {
    if (sink.times.length > 0 && sink.times.length < count) turns += 1;
    if (!isOver) setImmediate(spin);
  };
  spin();
  await until("the flood", () => sink.times.length === count);
  isOver = true;
  t.ok(turns >= 10, `${turns} turns of others between first and last batch`);
  t.strictSame(sink.times, upTo(count));
});

t.test("feeds take turns at replays, and one that leaves gives its turn on", async (t) => {
  const started: string[] = [];
  const slots = new ReplaySlots(2);
  const take = (name: string) => slots.take(() => started.push(name));
  const [giveA, giveB, giveC, giveD] = ["a", "b", "c", "d"].map(take) as [
    () => void,
    () => void,
    () => void,
    () => void,
  ];
  t.strictSame(started, ["a", "b"]);
  giveC();
  giveA();
  giveA();
  t.strictSame(started, ["a", "b", "d"], "c had left, and a gives back once");
  giveB();
  giveD();
  take("e");
  take("f");
  take("g");
  t.strictSame(started, ["a", "b", "d", "e", "f"]);

  const publisher = await makePublisher(t);
  publisher.publish(payload(0));
  const rig = makeRig(t, {}, 1);
  const feeds = upTo(5).map(() => rig.open(publisher.endpoint, publisher.replayEndpoint));
  await until("all live", () => feeds.every(({ feed }) => feed.state() === "live"));
  t.strictSame(
    feeds.map(({ sink }) => sink.times),
    upTo(5).map(() => [0]),
  );
});

t.test("the publisher answers as vLLM does and leaves malformed requests alone", async (t) => {
  const logger = new MemoryLogger();
  const publisher = await makePublisher(t, { ringBatches: 3, logger });
  for (const time of upTo(5)) publisher.publish(payload(time));
  const dealer = new Dealer({ linger: 0 });
  t.teardown(() => dealer.close());
  dealer.connect(publisher.replayEndpoint);
  await dealer.send([Buffer.from("0000000000000000", "hex")]);
  await dealer.send([Buffer.from(""), Buffer.from("00000003", "hex")]);
  const got: string[][] = [];
  for (let frames: Buffer[] = []; frames.at(-1)?.length !== 0; ) {
    frames = await dealer.receive();
    got.push(frames.map((frame) => frame.toString("hex")));
  }
  const topic = Buffer.from("kv@w1@tiny").toString("hex");
  const hex = (time: number) => Buffer.from(payload(time)).toString("hex");
  t.strictSame(got, [
    ["", topic, "0000000000000003", hex(3)],
    ["", topic, "0000000000000004", hex(4)],
    ["", "", "ffffffffffffffff", ""],
  ]);
  t.equal(logger.lines.length, 1, "the one-frame request was logged");
  const { sink, feed } = makeRig(t).open(publisher.endpoint, publisher.replayEndpoint);
  await until("live", () => feed.state() === "live");
  t.strictSame(sink.times, [2, 3, 4], "the ring keeps the newest");
  await t.rejects(
    createKvPublisher({ endpoint: publisher.endpoint, replayEndpoint: null, topic: "", logger }),
    "a taken port is an error",
  );
});

t.test("a bad replay address is told and ends in a lossy feed, not in a crash", async (t) => {
  const publisher = await makePublisher(t);
  const rig = makeRig(t, { replayIdleMs: 10, replayStallsMax: 1 });
  const { feed } = rig.open(publisher.endpoint, "nowhere");
  await until("lossy", () => feed.state() === "lossy");
  t.ok(rig.logger.lines.some((line) => line.level === "error"));
  t.throws(() => rig.open("nowhere", null), "a bad stream address fails at once");
});

t.test("a process ends by itself once all is closed", async (t) => {
  const script = join(import.meta.dirname, "open-and-close.ts");
  const child = spawn(process.execPath, [script], { stdio: ["ignore", "pipe", "inherit"] });
  t.teardown(() => child.kill("SIGKILL"));
  const guard = globalThis.setTimeout(() => child.kill("SIGKILL"), 20_000);
  const [code, signal] = await once(child, "exit");
  clearTimeout(guard);
  t.strictSame([code, signal], [0, null]);
});
