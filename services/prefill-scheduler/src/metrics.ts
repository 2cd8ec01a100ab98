import { defineMetrics } from "@baton/ports";
import { schedulerMetricDefinitions } from "@baton/scheduler-shell";

const seconds = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

export const metricDefinitions = defineMetrics({
  ...schedulerMetricDefinitions,
  baton_prefill_placed_tokens_total: {
    kind: "counter",
    help: "Prompt tokens of placed requests whose tokens are known.",
    labels: [],
  },
  baton_prefill_predicted_cached_tokens_total: {
    kind: "counter",
    help: "Tokens that the index said the chosen worker holds, when it was chosen.",
    labels: [],
  },
  baton_prefill_realised_cached_tokens_total: {
    kind: "counter",
    help: "Cached tokens that the prefill engines reported. Far below the predicted ones means that the index is wrong.",
    labels: [],
  },
  baton_prefill_predicted_wait_seconds: {
    kind: "histogram",
    help: "Predicted wait at the chosen worker before its prefill starts.",
    labels: [],
    buckets: seconds,
  },
  baton_prefill_leg_seconds: {
    kind: "histogram",
    help: "Time from sending the prefill leg to its answer.",
    labels: [],
    buckets: seconds,
  },
});

export type PrefillMetricDefinitions = typeof metricDefinitions;
