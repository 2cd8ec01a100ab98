import { createMemoryBus } from "@baton/bus";
import { type KvEvent, tierWeightsFixed } from "@baton/domain";
import { hashFromBigInt, hashListToBytes } from "@baton/kit";
import { ManualClock } from "@baton/kit/testing";
import { hashBlocks, namespaceRoot } from "@baton/kv-blocks";
import { engineProfiles, profileDefault } from "@baton/perf-model";
import {
  FakeEngineClient,
  FakeKvEventSource,
  ManualTimers,
  MemoryLogger,
  MemoryMetrics,
  RecordingBus,
  settle,
  turnTimers,
} from "@baton/ports/testing";
import {
  createPrefillScheduler,
  type metricDefinitions,
  type PrefillSchedulerConfig,
} from "@baton/prefill-scheduler";
import { FakeFrontend, FakeWorkers } from "@baton/scheduler-shell/testing";
import type { Test } from "tap";

/** A started prefill-scheduler of p0 and p1, on a memory bus with manual time. */
export async function openRig(t: Test, over: Partial<PrefillSchedulerConfig> = {}) {
  const clock = new ManualClock();
  const timers = new ManualTimers(clock);
  const logger = new MemoryLogger();
  const metrics = new MemoryMetrics<typeof metricDefinitions>();
  const hub = createMemoryBus({ timers: turnTimers(timers) });
  const workers = new FakeWorkers("m", ["p0", "p1"]);
  const engineClient = new FakeEngineClient();
  engineClient.onFetch = workers.answer;
  const kv = new FakeKvEventSource();
  const bus = new RecordingBus(hub.connect({ name: "prefill-scheduler" }));
  const scheduler = createPrefillScheduler(
    {
      model: "m",
      schedulerId: "s0",
      workers: ["p0", "p1"].map((workerId) => ({
        workerId,
        url: `http://${workerId}:8000`,
        role: "prefill",
        dialect: "vllm",
        connector: "nixl-pull",
        kvEvents: { kind: "auto" },
      })),
      pollIntervalMs: 500,
      pollTimeoutMs: 100,
      decisionsKept: 1_000,
      policy: "cost",
      coefficients: engineProfiles[profileDefault]!.prefill,
      tierWeights: tierWeightsFixed,
      waitMsMax: 60_000,
      seed: 7,
      ...over,
    },
    { clock, timers, logger, metrics, bus, engineClient, kvEventSource: kv },
  );
  const frontend = new FakeFrontend(hub.connect({ name: "frontend" }), "m");
  await scheduler.start();
  await settle();
  t.teardown(() => scheduler.drain());
  return {
    ...{ clock, timers, logger, metrics, hub, bus, workers, engineClient, kv, scheduler, frontend },
    async tick(ms: number): Promise<void> {
      for (let left = ms; left > 0; left -= 500) {
        frontend.beat();
        timers.advance(Math.min(500, left));
        await settle();
      }
    },
    leases: (worker: string) =>
      metrics.value("baton_worker_live_leases", { pool: "prefill", worker }),
    lost: (cause: string) =>
      metrics.value("baton_scheduler_leases_lost_total", { pool: "prefill", cause }),
  };
}

/** `count` tokens that no other prompt of another `seed` shares. */
export const tokens = (count: number, seed: number): Uint32Array =>
  Uint32Array.from({ length: count }, (_, at) => seed * 1_000_000 + at);

/** The part of a plan that says what the prompt is. */
export function promptOf(tokenIds: Uint32Array, blockSizeTokens = 16) {
  const root = namespaceRoot({ model: "m", loraName: null, cacheSalt: null });
  return {
    promptTokens: tokenIds.length,
    promptBytes: tokenIds.length * 4,
    hashSets: [
      { blockSizeTokens, hashes: hashListToBytes(hashBlocks(tokenIds, blockSizeTokens, root)) },
    ],
  };
}

/** What an engine announces when it has the prompt's blocks; its hashes are its own. */
export function stored(tokenIds: Uint32Array, medium: string | null = "GPU"): KvEvent {
  const count = Math.floor(tokenIds.length / 16);
  return {
    kind: "stored",
    engineHashes: engineHashes(tokenIds),
    parentEngineHash: null,
    tokenIds: tokenIds.slice(0, count * 16),
    blockSizeTokens: 16,
    medium,
    loraName: null,
    cacheSalt: null,
    extraKeys: null,
    groupIndex: null,
    specKind: null,
  };
}

export function removed(tokenIds: Uint32Array, medium: string | null = "GPU"): KvEvent {
  return { kind: "removed", engineHashes: engineHashes(tokenIds), medium, groupIndex: null };
}

function engineHashes(tokenIds: Uint32Array) {
  const count = Math.floor(tokenIds.length / 16);
  const first = BigInt(tokenIds[0]!) << 20n;
  return hashFromBigInt(...Array.from({ length: count }, (_, at) => first + BigInt(at)));
}
