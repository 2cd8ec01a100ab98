import { defineMetrics } from "@baton/ports";

const seconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];

export const metricDefinitions = defineMetrics({
  baton_frontend_requests_total: {
    kind: "counter",
    help: "Requests that ended, by route and result (done, client-closed, or the error code).",
    labels: ["route", "result"],
  },
  baton_frontend_live_requests: {
    kind: "gauge",
    help: "Requests that have begun and not ended, those that only clean up after a client included.",
    labels: [],
  },
  baton_frontend_ttft_seconds: {
    kind: "histogram",
    help: "From the request's arrival to the first byte of the decode engine's answer.",
    labels: ["route"],
    buckets: seconds,
  },
  baton_frontend_e2e_seconds: {
    kind: "histogram",
    help: "From the request's arrival to the end of its answer, for requests that were done.",
    labels: ["route"],
    buckets: seconds,
  },
  baton_frontend_plan_seconds: {
    kind: "histogram",
    help: "From asking for a prefill worker to having room on a decode worker.",
    labels: [],
    buckets: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5],
  },
  baton_frontend_attempts_retried_total: {
    kind: "counter",
    help: "Attempts that failed before the client's first byte and were planned again.",
    labels: [],
  },
  baton_frontend_abandoned_legs_total: {
    kind: "counter",
    help: "Decode legs driven only so that a prefill engine frees its blocks.",
    labels: [],
  },
  baton_frontend_prompt_tokens_total: {
    kind: "counter",
    help: "Prompt tokens, by where they were counted (ids given by the client, local, engine).",
    labels: ["source"],
  },
  baton_frontend_output_tokens_total: {
    kind: "counter",
    help: "Answer tokens that engines reported.",
    labels: [],
  },
  baton_frontend_without_overlap_total: {
    kind: "counter",
    help: "Requests placed without overlap knowledge, by reason.",
    labels: ["reason"],
  },
  baton_frontend_hashes_cut_total: {
    kind: "counter",
    help: "Prompts with more blocks than a plan carries (65,536); the rest is not looked up.",
    labels: [],
  },
  baton_frontend_unsplit_total: {
    kind: "counter",
    help: "Requests that one engine serves whole, by what in them forbids splitting prefill from decode.",
    labels: ["reason"],
  },
  baton_frontend_outcomes_unsent_total: {
    kind: "counter",
    help: "Outcome messages that the bus refused; the schedulers' leases then end by deadline.",
    labels: ["code"],
  },
  baton_frontend_tokenizer_info: {
    kind: "gauge",
    help: "1 for the tokenizer mode in use; with `none` prompts given as text have no overlap knowledge.",
    labels: ["mode"],
  },
});

export type FrontendMetricDefinitions = typeof metricDefinitions;
