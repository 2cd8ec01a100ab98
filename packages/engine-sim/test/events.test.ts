import type { KvBatch } from "@baton/domain";
import { hashHex } from "@baton/kit";
import { createZmqKvEventSource } from "@baton/kv-feed";
import type { KvEventSource } from "@baton/ports";
import { MemoryLogger } from "@baton/ports/testing";
import t from "tap";
import { keepForRemote, prompt, type SimUnderTest, startSim, until } from "./sim-under-test.ts";

interface Heard {
  readonly batches: { batch: KvBatch; sequence: bigint }[];
  readonly states: string[];
}

function realSource(t: { teardown(end: () => Promise<void>): unknown }): KvEventSource {
  const source = createZmqKvEventSource({
    clock: { nowMs: () => performance.now(), wallMs: () => Date.now() },
    timers: {
      after(delayMs, callback) {
        const timer = setTimeout(callback, delayMs);
        return { cancel: () => clearTimeout(timer) };
      },
      every(intervalMs, callback) {
        const timer = setInterval(callback, intervalMs);
        return { cancel: () => clearInterval(timer) };
      },
    },
    logger: new MemoryLogger(),
  });
  t.teardown(() => source.close());
  return source;
}

async function listen(source: KvEventSource, sim: SimUnderTest): Promise<Heard> {
  const heard: Heard = { batches: [], states: [] };
  const feed = source.open(
    { workerId: sim.engineId, endpoint: sim.kvEvents!, replayEndpoint: sim.kvReplay },
    {
      onBatch: (batch, sequence) => heard.batches.push({ batch, sequence }),
      onReset: (reason) => heard.states.push(`reset ${reason}`),
      onState: (state) => heard.states.push(state),
    },
  );
  await until("the feed is live", () => feed.state() === "live");
  return heard;
}

t.test("a subscriber hears of computed, pulled and generated blocks, in order", async (t) => {
  const argv = ["--speed", "50", "--topic", "kv@w0@m"];
  const P = await startSim(t, ...argv);
  const D = await startSim(t, ...argv);
  const sources = await P.get("/kv_event_sources");
  t.match(sources.json["0"], {
    endpoint: P.kvEvents,
    replay_endpoint: P.kvReplay,
    topic: "kv@w0@m",
  });
  const source = realSource(t);
  const [fromP, fromD] = await Promise.all([listen(source, P), listen(source, D)]);
  const ids = prompt(1, 60);
  const leg = { prompt: ids, max_tokens: 1, kv_transfer_params: keepForRemote };
  const handle = (await P.post("/v1/completions", leg)).json.kv_transfer_params;
  const body = { prompt: ids, max_tokens: 10, return_token_ids: true, kv_transfer_params: handle };
  const answer = await D.post("/v1/completions", body);
  await until("D's two stores", () => fromD.batches.length === 2);
  await until("P's store", () => fromP.batches.length === 1);
  const stored = [...fromP.batches, ...fromD.batches].map(({ batch, sequence }) => {
    const [event] = batch.events;
    if (event?.kind !== "stored") throw new Error(`${event?.kind} at ${sequence}`);
    return { ...event, sequence, wallS: batch.engineTimeS };
  });
  const [computed, pulled, generated] = stored as [
    (typeof stored)[0],
    (typeof stored)[0],
    (typeof stored)[0],
  ];
  t.same([...computed.tokenIds], ids.slice(0, 48));
  t.same([...pulled.tokenIds], ids.slice(0, 48));
  t.not(hashHex(computed.engineHashes, 0), hashHex(pulled.engineHashes, 0), "hashes are private");
  const output: number[] = answer.json.choices[0].token_ids;
  t.same([...generated.tokenIds], [...ids.slice(48), ...output.slice(0, 4)]);
  t.equal(hashHex(generated.parentEngineHash!, 0), hashHex(pulled.engineHashes, 2));
  t.same(
    stored.map(({ sequence }) => sequence),
    [0n, 0n, 1n],
  );
  t.match(computed, { medium: "GPU", groupIndex: 0, specKind: "full_attention", cacheSalt: null });
  t.ok(Math.abs(computed.wallS * 1000 - Date.now()) < 60_000);
});

t.test(
  "a reset is announced with the next step, a silent one and a lost batch are not",
  async (t) => {
    const sim = await startSim(t, "--speed", "50");
    const heard = await listen(realSource(t), sim);
    const ask = (ids: number[]) => sim.post("/v1/completions", { prompt: ids, max_tokens: 1 });
    await ask(prompt(1, 40));
    await sim.post("/sim/faults", { clearCacheSilently: true });
    await ask(prompt(1, 40));
    t.same((await sim.post("/reset_prefix_cache", "")).json, { success: true });
    await ask(prompt(2, 40));
    const salted = { prompt: prompt(2, 40), max_tokens: 1, cache_salt: "tenant" };
    await sim.post("/v1/completions", salted);
    await until("four batches", () => heard.batches.length === 4);
    t.same(
      heard.batches.map(({ batch }) => batch.events.map((event) => event.kind)),
      [["stored"], ["stored"], ["cleared", "stored"], ["stored"]],
    );
    t.match(heard.batches.at(-1)?.batch.events[0], { cacheSalt: "tenant" });
    await sim.post("/sim/faults", { dropEvents: 1 });
    await ask(prompt(3, 40));
    await ask(prompt(4, 40));
    await until("the lost batch was replayed", () => heard.batches.length === 6);
    t.same(
      heard.batches.map(({ sequence }) => sequence),
      [0n, 1n, 2n, 3n, 4n, 5n],
    );
    t.ok(heard.states.includes("replay"));
    await sim.post("/sim/faults", { muteEvents: true });
    await ask(prompt(5, 40));
    await sim.post("/sim/faults", { muteEvents: false });
    await ask(prompt(6, 40));
    await until("the next batch", () => heard.batches.length === 7);
    t.equal(heard.batches.at(-1)?.sequence, 6n, "muted batches take no number");
  },
);
