import { invariant } from "@baton/kit";
import type { Counter, Gauge, Histogram, Labels, MetricDefinition } from "@baton/ports";
import {
  Counter as PromCounter,
  Gauge as PromGauge,
  Histogram as PromHistogram,
  type Registry,
} from "prom-client";

/** One instrument for all kinds; `Metrics` hands it out as the kind that was asked for. */
export interface Instrument extends Counter, Gauge, Histogram {
  add(value?: number): void;
}

export interface FamilyEvents {
  /** A label set was turned away because the family is full. */
  onOverflow(): void;
  /** A value was dropped: not a number, or a counter's step below 0. */
  onBadValue(): void;
}

/** Label value of the one series that takes what a full family has no room for. */
const overflowValue = "other";

/**
 * One metric with all its series. The map from label values to instruments is ours, because
 * prom-client hashes the labels at each call.
 */
export class MetricFamily {
  readonly kind: MetricDefinition["kind"];
  readonly #name: string;
  readonly #labelNames: readonly string[];
  readonly #prom: Prom;
  readonly #series = new Map<string, Series>();
  readonly #seriesMax: number;
  readonly #events: FamilyEvents;
  #overflow: Series | null = null;

  constructor(
    name: string,
    definition: MetricDefinition,
    given: { registry: Registry; seriesMax: number; events: FamilyEvents },
  ) {
    this.kind = definition.kind;
    this.#name = name;
    this.#labelNames = definition.labels;
    this.#seriesMax = given.seriesMax;
    this.#events = given.events;
    this.#prom = createProm(name, definition, given.registry);
    if (definition.labels.length === 0) this.instrument({});
  }

  /** The instrument of these labels; a new series starts at 0. Cost when known: one map lookup. */
  instrument(labels: Labels): Instrument {
    const key = this.#key(labels);
    const known = this.#series.get(key);
    if (known !== undefined) return known;
    this.#checkLabels(labels);
    if (this.#series.size >= this.#seriesMax) {
      this.#events.onOverflow();
      const other = Object.fromEntries(this.#labelNames.map((name) => [name, overflowValue]));
      this.#overflow ??= new Series(this.#prom, other, this.#events);
      return this.#overflow;
    }
    // A copy: the caller may go on to change its object.
    const series = new Series(this.#prom, { ...labels }, this.#events);
    this.#series.set(key, series);
    return series;
  }

  /** Instruments of the series that callers still hold go dead: what they are told is dropped. */
  remove(labels: Labels): void {
    invariant(this.#labelNames.length > 0, `metric ${this.#name} has one series, which stays`);
    const key = this.#key(labels);
    this.#series.get(key)?.end();
    this.#series.delete(key);
  }

  #key(labels: Labels): string {
    const names = this.#labelNames;
    if (names.length === 1) return this.#value(labels, names[0]!);
    let key = "";
    for (const name of names) key += `${this.#value(labels, name)}\u0000`;
    return key;
  }

  #value(labels: Labels, name: string): string {
    const value = labels[name];
    invariant(typeof value === "string", `metric ${this.#name} needs the label ${name}`);
    return value;
  }

  #checkLabels(labels: Labels): void {
    for (const name of Object.keys(labels)) {
      invariant(this.#labelNames.includes(name), `metric ${this.#name} has no label ${name}`);
    }
  }
}

type Prom =
  | { readonly kind: "counter"; readonly metric: PromCounter }
  | { readonly kind: "gauge"; readonly metric: PromGauge }
  | { readonly kind: "histogram"; readonly metric: PromHistogram };

function createProm(name: string, definition: MetricDefinition, registry: Registry): Prom {
  const { help } = definition;
  const options = { name, help, labelNames: [...definition.labels], registers: [registry] };
  switch (definition.kind) {
    case "counter":
      return { kind: "counter", metric: new PromCounter(options) };
    case "gauge":
      return { kind: "gauge", metric: new PromGauge(options) };
    case "histogram": {
      const buckets = [...definition.buckets];
      return { kind: "histogram", metric: new PromHistogram({ ...options, buckets }) };
    }
  }
}

/**
 * One series. A measurement that is not a number must not take a request down with it, so it is
 * dropped and counted; only a gauge may be NaN, which Prometheus reads as unknown.
 */
class Series implements Instrument {
  readonly #prom: Prom;
  readonly #labels: Record<string, string>;
  readonly #events: FamilyEvents;
  #observe: ((value: number) => void) | null = null;
  #isLive = true;

  constructor(prom: Prom, labels: Record<string, string>, events: FamilyEvents) {
    this.#prom = prom;
    this.#labels = labels;
    this.#events = events;
    if (prom.kind === "counter") prom.metric.inc(labels, 0);
    else if (prom.kind === "gauge") prom.metric.set(labels, 0);
    else {
      prom.metric.zero(labels);
      this.#observe = prom.metric.labels(labels).observe;
    }
  }

  add(value = 1): void {
    if (!this.#isLive) return;
    if (this.#prom.kind === "counter") {
      if (value >= 0 && Number.isFinite(value)) this.#prom.metric.inc(this.#labels, value);
      else this.#events.onBadValue();
    } else if (this.#prom.kind === "gauge") {
      if (Number.isFinite(value)) this.#prom.metric.inc(this.#labels, value);
      else this.#events.onBadValue();
    }
  }

  set(value: number): void {
    if (!this.#isLive || this.#prom.kind !== "gauge") return;
    this.#prom.metric.set(this.#labels, value);
  }

  observe(value: number): void {
    if (!this.#isLive || this.#observe === null) return;
    if (Number.isFinite(value)) this.#observe(value);
    else this.#events.onBadValue();
  }

  end(): void {
    this.#isLive = false;
    this.#prom.metric.remove(this.#labels);
  }
}
