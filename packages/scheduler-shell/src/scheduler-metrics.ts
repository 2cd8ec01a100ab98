import { defineMetrics } from "@baton/ports";

/** Metrics that both schedulers have; the label `pool` tells them apart. */
export const schedulerMetricDefinitions = defineMetrics({
  baton_scheduler_decisions_total: {
    kind: "counter",
    help: "Placement choices, by result (the error code when nobody was chosen).",
    labels: ["pool", "result"],
  },
  baton_scheduler_live_leases: {
    kind: "gauge",
    help: "Attempts that hold capacity of a worker.",
    labels: ["pool"],
  },
  baton_scheduler_leases_lost_total: {
    kind: "counter",
    help: "Leases ended by a deadline, a silent frontend or a restarted worker.",
    labels: ["pool", "cause"],
  },
  baton_scheduler_live_frontends: {
    kind: "gauge",
    help: "Frontends heard from lately.",
    labels: ["pool"],
  },
  baton_worker_up_state: {
    kind: "gauge",
    help: "1 when the worker answers and serves the model, else 0.",
    labels: ["pool", "worker"],
  },
  baton_worker_live_leases: {
    kind: "gauge",
    help: "Attempts charged to the worker.",
    labels: ["pool", "worker"],
  },
  baton_worker_signal_missing_state: {
    kind: "gauge",
    help: "1 when the engine does not report this signal and our own count is used instead.",
    labels: ["pool", "worker", "signal"],
  },
  baton_worker_restarts_total: {
    kind: "counter",
    help: "New incarnations of a known worker.",
    labels: ["pool", "worker"],
  },
  baton_worker_faults_total: {
    kind: "counter",
    help: "Requests that failed by the worker's fault.",
    labels: ["pool", "worker"],
  },
  baton_kv_feed_state: {
    kind: "gauge",
    help: "1 for the state that the worker's KV event feed is in.",
    labels: ["worker", "state"],
  },
  baton_kv_events_total: {
    kind: "counter",
    help: "KV events, by kind, or by the reason why they were not applied.",
    labels: ["worker", "result"],
  },
  baton_bus_messages_refused_total: {
    kind: "counter",
    help: "Messages that could not be read, by error code.",
    labels: ["code"],
  },
});

export type SchedulerMetricDefinitions = typeof schedulerMetricDefinitions;
