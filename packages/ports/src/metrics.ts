export type Labels = Readonly<Record<string, string>>;

export type MetricDefinition =
  | {
      readonly kind: "counter" | "gauge";
      readonly help: string;
      readonly labels: readonly string[];
    }
  | {
      readonly kind: "histogram";
      readonly help: string;
      readonly labels: readonly string[];
      readonly buckets: readonly number[];
    };

/** Keeps the literal names, so that a service can only touch metrics that it declared. */
export function defineMetrics<const T extends Record<string, MetricDefinition>>(definitions: T): T {
  return definitions;
}

export interface Counter {
  add(value?: number): void;
}

export interface Gauge {
  set(value: number): void;
  add(value: number): void;
}

export interface Histogram {
  observe(value: number): void;
}

/**
 * Instruments by name and labels. Every declared series without labels exists from birth with 0;
 * one with labels exists from the first call, which services make at start for known values.
 * Calls with equal labels return the same instrument; keep it on hot paths.
 */
export interface Metrics<T extends Record<string, MetricDefinition>> {
  counter(name: keyof T & string, labels?: Labels): Counter;
  gauge(name: keyof T & string, labels?: Labels): Gauge;
  histogram(name: keyof T & string, labels?: Labels): Histogram;
  /** Forgets one series, e.g. of a worker that is gone. */
  remove(name: keyof T & string, labels: Labels): void;
}
