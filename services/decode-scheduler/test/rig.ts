import { createMemoryBus } from "@baton/bus";
import {
  createDecodeScheduler,
  type DecodeSchedulerConfig,
  type metricDefinitions,
} from "@baton/decode-scheduler";
import { ManualClock } from "@baton/kit/testing";
import { engineProfiles, profileDefault } from "@baton/perf-model";
import {
  FakeEngineClient,
  ManualTimers,
  MemoryLogger,
  MemoryMetrics,
  RecordingBus,
  settle,
  turnTimers,
} from "@baton/ports/testing";
import { FakeFrontend, FakeWorkers } from "@baton/scheduler-shell/testing";
import type { Test } from "tap";

export const profile = engineProfiles[profileDefault]!;

/** A prefill worker as the prefill-scheduler offers it. */
export const offer = (workerId: string, connector = "nixl-pull") => ({
  worker: { workerId, incarnation: "1" },
  isAggregated: false,
  connector,
});

/** A started decode-scheduler of d0 and d1, on a memory bus with manual time. */
export async function openRig(t: Test, over: Partial<DecodeSchedulerConfig> = {}) {
  const clock = new ManualClock();
  const timers = new ManualTimers(clock);
  const logger = new MemoryLogger();
  const metrics = new MemoryMetrics<typeof metricDefinitions>();
  const hub = createMemoryBus({ timers: turnTimers(timers) });
  const workers = new FakeWorkers("m", ["d0", "d1"]);
  const engineClient = new FakeEngineClient();
  engineClient.onFetch = workers.answer;
  const bus = new RecordingBus(hub.connect({ name: "decode-scheduler" }));
  const scheduler = createDecodeScheduler(
    {
      model: "m",
      schedulerId: "s0",
      workers: ["d0", "d1"].map((workerId) => ({
        workerId,
        url: `http://${workerId}:8000`,
        role: "decode",
        dialect: "vllm",
        connector: "nixl-pull",
        kvEvents: { kind: "off" },
      })),
      pollIntervalMs: 500,
      pollTimeoutMs: 100,
      decisionsKept: 1_000,
      policy: "cost",
      profile,
      linkBytesPerSecond: 50e9,
      outputTokensDefault: 512,
      handleLeaseMs: null,
      seed: 7,
      ...over,
    },
    { clock, timers, logger, metrics, bus, engineClient, kvEventSource: null },
  );
  const frontend = new FakeFrontend(hub.connect({ name: "frontend" }), "m");
  await scheduler.start();
  await settle();
  t.teardown(() => scheduler.drain());
  return {
    ...{ clock, timers, logger, metrics, hub, bus, workers, engineClient, scheduler, frontend },
    async tick(ms: number): Promise<void> {
      for (let left = ms; left > 0; left -= 500) {
        frontend.beat();
        timers.advance(Math.min(500, left));
        await settle();
      }
    },
    /** Every gauge that counts what is held; all zero at rest. */
    held() {
      const each = (worker: string) => ({
        leases: metrics.value("baton_worker_live_leases", { pool: "decode", worker }),
        kvTokens: metrics.value("baton_decode_kv_promised_tokens", { worker }),
        ingressBytes: metrics.value("baton_transfer_ingress_bytes", { worker }),
      });
      return {
        d0: each("d0"),
        d1: each("d1"),
        openHandles: metrics.value("baton_transfer_open_handles"),
        transfers: metrics.value("baton_transfer_reserved_transfers"),
      };
    },
    lost: (cause: string) =>
      metrics.value("baton_scheduler_leases_lost_total", { pool: "decode", cause }),
    handles: (result: string) => metrics.value("baton_transfer_handles_total", { result }),
  };
}

const nothingOn = { leases: 0, kvTokens: 0, ingressBytes: 0 };
export const nothingHeld = { d0: nothingOn, d1: nothingOn, openHandles: 0, transfers: 0 };
