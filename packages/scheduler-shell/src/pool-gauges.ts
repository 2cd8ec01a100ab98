import type { KvFeedState, Pool } from "@baton/domain";
import { requiredSignals } from "@baton/fleet";
import type { Metrics } from "@baton/ports";
import type { SchedulerPool } from "./pool-settings.ts";
import type { SchedulerMetricDefinitions } from "./scheduler-metrics.ts";

/** Gauges of one pool: its workers, their leases and KV event feeds. */
export class PoolGauges {
  readonly #pool: Pool;
  readonly #metrics: Metrics<SchedulerMetricDefinitions>;
  readonly #feedStates = new Map<string, KvFeedState | "none">();

  constructor(pool: Pool, metrics: Metrics<SchedulerMetricDefinitions>) {
    this.#pool = pool;
    this.#metrics = metrics;
  }

  /** Series exist from birth, so that an alert or an autoscaler never reads a gap as zero. */
  seed(workerIds: readonly string[]): void {
    const pool = this.#pool;
    const metrics = this.#metrics;
    metrics.counter("baton_scheduler_decisions_total", { pool, result: "chosen" }).add(0);
    for (const cause of ["deadline", "frontend gone", "worker restarted"]) {
      metrics.counter("baton_scheduler_leases_lost_total", { pool, cause }).add(0);
    }
    for (const worker of workerIds) {
      metrics.counter("baton_worker_restarts_total", { pool, worker }).add(0);
      metrics.counter("baton_worker_faults_total", { pool, worker }).add(0);
    }
  }

  set(state: SchedulerPool, liveFrontends: number): void {
    const metrics = this.#metrics;
    const pool = this.#pool;
    let total = 0;
    const leases = state.leasesByWorker();
    for (const worker of state.fleet.workers()) {
      const labels = { pool, worker: worker.config.workerId };
      const count = leases.get(worker.config.workerId) ?? 0;
      total += count;
      metrics.gauge("baton_worker_up_state", labels).set(worker.state === "up" ? 1 : 0);
      metrics.gauge("baton_worker_live_leases", labels).set(count);
      for (const signal of requiredSignals) {
        const isMissing = worker.state === "up" && worker.signals[signal].kind !== "known";
        metrics
          .gauge("baton_worker_signal_missing_state", { ...labels, signal })
          .set(isMissing ? 1 : 0);
      }
    }
    metrics.gauge("baton_scheduler_live_leases", { pool }).set(total);
    metrics.gauge("baton_scheduler_live_frontends", { pool }).set(liveFrontends);
  }

  feedState(worker: string): KvFeedState | "none" {
    return this.#feedStates.get(worker) ?? "init";
  }

  setFeedState(worker: string, state: KvFeedState | "none"): void {
    const earlier = this.#feedStates.get(worker);
    if (earlier !== undefined) {
      this.#metrics.gauge("baton_kv_feed_state", { worker, state: earlier }).set(0);
    }
    this.#metrics.gauge("baton_kv_feed_state", { worker, state }).set(1);
    this.#feedStates.set(worker, state);
  }
}
