import { defineMetrics } from "@baton/ports";
import { schedulerMetricDefinitions } from "@baton/scheduler-shell";

export const metricDefinitions = defineMetrics({
  ...schedulerMetricDefinitions,
  baton_transfer_handles_total: {
    kind: "counter",
    help: "KV handles that frontends asked to present, by answer.",
    labels: ["result"],
  },
  baton_transfer_handles_fenced_total: {
    kind: "counter",
    help: "Open handles that became void because their prefill worker restarted.",
    labels: [],
  },
  baton_transfer_open_handles: {
    kind: "gauge",
    help: "Handles that are claimed and not yet pulled, released or fenced.",
    labels: [],
  },
  baton_transfer_reserved_transfers: {
    kind: "gauge",
    help: "Transfers that are promised or under way.",
    labels: [],
  },
  baton_transfer_ingress_bytes: {
    kind: "gauge",
    help: "Bytes promised to, or under way to, the worker.",
    labels: ["worker"],
  },
  baton_decode_reservations_total: {
    kind: "counter",
    help: "Reservations by kind: remote (KV is transferred) or local (one engine does both).",
    labels: ["kind"],
  },
  baton_decode_kv_promised_tokens: {
    kind: "gauge",
    help: "KV room held for running and promised requests on the worker.",
    labels: ["worker"],
  },
});

export type DecodeMetricDefinitions = typeof metricDefinitions;
