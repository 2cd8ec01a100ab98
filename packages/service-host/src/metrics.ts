import { invariant } from "@baton/kit";
import { defineMetrics, type Labels, type MetricDefinition, type Metrics } from "@baton/ports";
import { Registry } from "prom-client";
import { MetricFamily } from "./metric-family.ts";
import { checkMetric } from "./metric-name.ts";

/** Metrics about the metrics; every `createMetrics` has them. */
export const selfMetricDefinitions = defineMetrics({
  baton_metrics_overflow_total: {
    kind: "counter",
    help: "Label sets counted under `other` because the metric had its most series.",
    labels: ["metric"],
  },
  baton_metrics_bad_values_total: {
    kind: "counter",
    help: "Values dropped because they were not finite, or lowered a counter.",
    labels: ["metric"],
  },
});

export interface MetricsOptions {
  /** Put before each name; the whole name starts with `baton_`. Default: names are whole. */
  readonly prefix?: string;
  /** Added to each series, e.g. `{ service: "frontend" }`; tells apart what `joinMetrics` joins. */
  readonly defaultLabels?: Labels;
  /** Series per metric; one more label set is counted as `other`. Default 1,000. */
  readonly seriesMax?: number;
  /** Called before each rendering, to set gauges that are read from elsewhere. */
  readonly beforeText?: () => void;
}

/** Metrics that can be scraped. */
export interface MetricsText {
  readonly defaultLabels: Labels;
  /** By whole name. */
  readonly definitions: Readonly<Record<string, MetricDefinition>>;
  /** Prometheus text format 0.0.4. */
  text(): Promise<string>;
  /** The same in blocks by whole name: two comment lines, then the series. */
  blocks(): Promise<ReadonlyMap<string, string>>;
}

export type ServiceMetrics<T extends Record<string, MetricDefinition>> = Metrics<T> & MetricsText;

export const metricsContentType = Registry.PROMETHEUS_CONTENT_TYPE;

const seriesMaxDefault = 1_000;

/**
 * Prometheus metrics in a registry of their own. Definitions are checked here: a bad name, label or
 * bucket list throws. So does a call with an unknown name or with wrong labels; a value that is not
 * a number does not.
 */
export function createMetrics<const T extends Record<string, MetricDefinition>>(
  definitions: T,
  options: MetricsOptions = {},
): ServiceMetrics<T> {
  return new PromMetrics(definitions, options);
}

class PromMetrics<T extends Record<string, MetricDefinition>> implements ServiceMetrics<T> {
  readonly defaultLabels: Labels;
  readonly definitions: Record<string, MetricDefinition> = {};
  readonly #registry = new Registry();
  readonly #families = new Map<string, MetricFamily>();
  readonly #beforeText: () => void;

  constructor(definitions: T, options: MetricsOptions) {
    const { prefix = "", defaultLabels = {}, seriesMax = seriesMaxDefault } = options;
    this.defaultLabels = defaultLabels;
    this.#beforeText = options.beforeText ?? (() => {});
    this.#registry.setDefaultLabels({ ...defaultLabels });
    const count = (name: keyof typeof selfMetricDefinitions, metric: string) =>
      this.#families.get(name)?.instrument({ metric }).add();
    const all: [string, string, MetricDefinition][] = [
      ...Object.entries(selfMetricDefinitions).map(([n, d]): [string, string, MetricDefinition] => [
        n,
        n,
        d,
      ]),
      ...Object.entries(definitions).map(([n, d]): [string, string, MetricDefinition] => [
        n,
        prefix + n,
        d,
      ]),
    ];
    for (const [key, name, definition] of all) {
      checkMetric(name, definition, Object.keys(defaultLabels));
      invariant(!(name in this.definitions), `metric ${name} is defined twice`);
      this.definitions[name] = definition;
      const events = {
        onOverflow: () => count("baton_metrics_overflow_total", name),
        onBadValue: () => count("baton_metrics_bad_values_total", name),
      };
      const given = { registry: this.#registry, seriesMax, events };
      this.#families.set(key, new MetricFamily(name, definition, given));
    }
  }

  counter(name: keyof T & string, labels: Labels = {}) {
    return this.#family(name, "counter").instrument(labels);
  }

  gauge(name: keyof T & string, labels: Labels = {}) {
    return this.#family(name, "gauge").instrument(labels);
  }

  histogram(name: keyof T & string, labels: Labels = {}) {
    return this.#family(name, "histogram").instrument(labels);
  }

  remove(name: keyof T & string, labels: Labels): void {
    this.#family(name, null).remove(labels);
  }

  async text(): Promise<string> {
    return textOfBlocks((await this.blocks()).values());
  }

  async blocks(): Promise<ReadonlyMap<string, string>> {
    this.#beforeText();
    const blocks = new Map<string, string>();
    for (const name of Object.keys(this.definitions)) {
      blocks.set(name, await this.#registry.getSingleMetricAsString(name));
    }
    return blocks;
  }

  #family(name: string, kind: MetricDefinition["kind"] | null): MetricFamily {
    const family = this.#families.get(name);
    invariant(family !== undefined, `no metric is called ${name}`);
    invariant(kind === null || family.kind === kind, `metric ${name} is a ${family.kind}`);
    return family;
  }
}

export function textOfBlocks(blocks: Iterable<string>): string {
  return `${[...blocks].join("\n\n")}\n`;
}
