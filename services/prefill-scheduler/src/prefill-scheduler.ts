import type { TierWeights } from "@baton/domain";
import { hashListFromBytes, Prng } from "@baton/kit";
import { tierOfMedium } from "@baton/kv-events";
import type { PrefillCoefficients } from "@baton/perf-model";
import { type PlaceRequest, type Policy, PrefillPool } from "@baton/placement";
import type { GetAnswer, Metrics } from "@baton/ports";
import { type MessageOf, type outcome, place, placed } from "@baton/protocol";
import { type PoolSettings, type SchedulerPorts, SchedulerShell } from "@baton/scheduler-shell";
import type { PrefillMetricDefinitions } from "./metrics.ts";

export interface PrefillSchedulerConfig extends PoolSettings {
  readonly policy: Policy;
  readonly coefficients: PrefillCoefficients;
  readonly tierWeights: TierWeights;
  readonly waitMsMax: number;
  /** Seed of the draws that break ties. */
  readonly seed: number;
}

export interface PrefillSchedulerPorts extends SchedulerPorts {
  readonly metrics: Metrics<PrefillMetricDefinitions>;
}

export interface Scheduler {
  start(): Promise<void>;
  /** What keeps requests from being served; empty when nothing does. */
  missing(): string[];
  workers(): GetAnswer;
  decisions(query: { readonly requestId: string | null; readonly limit: number }): GetAnswer;
  drain(): Promise<void>;
}

/** Chooses where prompts are prefilled, for one model's pool. */
export function createPrefillScheduler(
  config: PrefillSchedulerConfig,
  ports: PrefillSchedulerPorts,
): Scheduler {
  const pool = new PrefillPool({ ...config, tierOf: tierOfMedium });
  const prng = new Prng(config.seed);
  const { clock, metrics } = ports;
  const shell = new SchedulerShell({
    pool: "prefill",
    settings: config,
    ports,
    state: pool,
    onOutcome,
    onBatch(workerId, batch) {
      for (const event of batch.events) {
        const { ignored } = pool.applyEvent(workerId, event);
        const result = ignored ?? event.kind;
        metrics.counter("baton_kv_events_total", { worker: workerId, result }).add();
      }
      for (const [reason, count] of Object.entries(batch.skipped)) {
        const labels = { worker: workerId, result: `unreadable: ${reason}` };
        metrics.counter("baton_kv_events_total", labels).add(count);
      }
    },
    onReset: (workerId) => pool.resetEvents(workerId),
    onTick() {},
  });

  function onPlace(payload: Uint8Array): Uint8Array {
    const decoded = place.decode(payload);
    shell.read(decoded);
    if (!decoded.ok) return placed.encode({ kind: "rejected", error: decoded.error });
    const message = decoded.value;
    const request: PlaceRequest = {
      requestId: message.requestId,
      attempt: message.attempt,
      owner: shell.heard(message.frontend),
      promptTokens: message.promptTokens,
      promptBytes: message.promptBytes,
      hashSets: message.hashSets.map(({ blockSizeTokens, hashes }) => ({
        blockSizeTokens,
        hashes: hashListFromBytes(hashes.subarray(0, hashes.length - (hashes.length % 8))),
      })),
      deadlineMs: clock.nowMs() + message.deadlineMs,
      excluded: message.excluded,
    };
    const moment = { nowMs: clock.nowMs(), wallMs: clock.wallMs(), tieDraw: prng.next() };
    const { record, offers } = pool.place(request, moment);
    shell.decided(record, offers.ok ? null : offers.error);
    if (!offers.ok) return placed.encode({ kind: "rejected", error: offers.error });
    const best = offers.value[0]!;
    const { gpu, host, disk } = best.cachedTokens;
    metrics.counter("baton_prefill_placed_tokens_total").add(message.promptTokens ?? 0);
    metrics.counter("baton_prefill_predicted_cached_tokens_total").add(gpu + host + disk);
    metrics.histogram("baton_prefill_predicted_wait_seconds").observe(best.predictedWaitMs / 1_000);
    return placed.encode({ kind: "bound", candidates: offers.value });
  }

  function onOutcome(message: MessageOf<typeof outcome>): void {
    const nowMs = clock.nowMs();
    const { stage } = message;
    switch (stage.kind) {
      case "moved": {
        const moment = { nowMs, wallMs: clock.wallMs(), tieDraw: prng.next() };
        pool.moved(message, stage.prefill.workerId, moment);
        return;
      }
      case "returned":
        pool.withdrawn(message, false, nowMs);
        return;
      case "prefilled":
        metrics.counter("baton_prefill_realised_cached_tokens_total").add(stage.cachedTokens ?? 0);
        metrics.histogram("baton_prefill_leg_seconds").observe(stage.legMs / 1_000);
        pool.prefilled(message, nowMs);
        return;
      case "prefill-failed": {
        const worker = pool.withdrawn(message, stage.workerFault, nowMs);
        if (stage.workerFault && worker !== null) shell.faulted(worker);
        return;
      }
      case "first-byte":
        // An aggregated worker's first byte is the end of its prefill.
        pool.prefilled(message, nowMs);
        return;
      case "ended":
        pool.withdrawn(message, false, nowMs);
        return;
    }
  }

  return {
    async start() {
      shell.serve("place", onPlace);
      await shell.start();
    },
    missing: () => shell.missing(),
    workers: () => shell.workersAnswer(),
    decisions: (query) => ({ status: 200, body: { records: shell.decisions.find(query) } }),
    drain: () => shell.drain(),
  };
}
