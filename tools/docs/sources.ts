import {
  metricDefinitions as decodeMetrics,
  configSchema as decodeSchema,
} from "@baton/decode-scheduler";
import { errorCatalogue } from "@baton/domain";
import {
  metricDefinitions as frontendMetrics,
  configSchema as frontendSchema,
} from "@baton/frontend";
import {
  metricDefinitions as prefillMetrics,
  configSchema as prefillSchema,
} from "@baton/prefill-scheduler";
import { processMetricDefinitions, renderConfigDoc, renderMetricsDoc } from "@baton/service-host";
import { renderErrorsDoc } from "./errors-doc.ts";

export interface GeneratedDoc {
  /** Relative to the root. */
  readonly path: string;
  readonly title: string;
  /** What stands between the title and the tables. */
  readonly intro: string;
  readonly render: () => string;
}

/** Every document that is made from exported definitions; `npm run docs` writes them. */
export const generatedDocs: readonly GeneratedDoc[] = [
  {
    path: "docs/errors.md",
    title: "Errors",
    intro:
      "Every error that Baton answers or ends with. The code stands in `error.code` of the answer, " +
      "and in logs and metrics. `—`: the engine's own status is passed on, or a process ends.",
    render: () => renderErrorsDoc(errorCatalogue),
  },
  {
    path: "docs/config.md",
    title: "Configuration",
    intro: "Keys of the configuration file of each service.",
    render: () =>
      [
        renderConfigDoc("frontend", frontendSchema),
        renderConfigDoc("prefill-scheduler", prefillSchema),
        renderConfigDoc("decode-scheduler", decodeSchema),
      ].join("\n"),
  },
  {
    path: "docs/metrics.md",
    title: "Metrics",
    intro:
      "Served in the Prometheus text format at `/metrics`: by the frontend on the port of its API, " +
      "by the schedulers on their admin port.",
    render: () =>
      [
        renderMetricsDoc("frontend", frontendMetrics),
        renderMetricsDoc("prefill-scheduler", prefillMetrics),
        renderMetricsDoc("decode-scheduler", decodeMetrics),
        renderMetricsDoc("every service", processMetricDefinitions),
      ].join("\n"),
  },
];
