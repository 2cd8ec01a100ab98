import type { TimerHandle, Timers } from "./clock.ts";
import type { LogFields, Logger } from "./logger.ts";
import type { Counter, Gauge, Histogram, Labels, MetricDefinition, Metrics } from "./metrics.ts";

export { FakeEngineClient, FakeExchange } from "./testing/fake-engine-client.ts";
export { FakeKvEventSource, FakeKvFeed } from "./testing/fake-kv-event-source.ts";
export { RecordingBus } from "./testing/recording-bus.ts";
export { RecordingSink } from "./testing/recording-sink.ts";
export { settle, turnTimers } from "./testing/turns.ts";

/** Timers on a manual time line: `advance` runs what is due, in order, and moves the clock. */
export class ManualTimers implements Timers {
  readonly #clock: { nowMs(): number; advance(byMs: number): void };
  readonly #due: { atMs: number; order: number; everyMs: number | null; callback: () => void }[] =
    [];
  #order = 0;

  constructor(clock: { nowMs(): number; advance(byMs: number): void }) {
    this.#clock = clock;
  }

  after(delayMs: number, callback: () => void): TimerHandle {
    return this.#add(delayMs, null, callback);
  }

  every(intervalMs: number, callback: () => void): TimerHandle {
    return this.#add(intervalMs, intervalMs, callback);
  }

  /** Timers that are set and not yet called. */
  get pending(): number {
    return this.#due.length;
  }

  advance(byMs: number): void {
    const untilMs = this.#clock.nowMs() + byMs;
    for (;;) {
      this.#due.sort((left, right) => left.atMs - right.atMs || left.order - right.order);
      const next = this.#due[0];
      if (next === undefined || next.atMs > untilMs) break;
      this.#clock.advance(Math.max(0, next.atMs - this.#clock.nowMs()));
      if (next.everyMs === null) this.#due.shift();
      else next.atMs += next.everyMs;
      next.callback();
    }
    this.#clock.advance(untilMs - this.#clock.nowMs());
  }

  #add(delayMs: number, everyMs: number | null, callback: () => void): TimerHandle {
    const timer = { atMs: this.#clock.nowMs() + delayMs, order: this.#order++, everyMs, callback };
    this.#due.push(timer);
    return {
      cancel: () => {
        const index = this.#due.indexOf(timer);
        if (index >= 0) this.#due.splice(index, 1);
      },
    };
  }
}

/** Keeps log lines for assertions. */
export class MemoryLogger implements Logger {
  readonly lines: { level: string; message: string; fields: LogFields }[];
  readonly #fields: LogFields;

  constructor(
    fields: LogFields = {},
    lines: { level: string; message: string; fields: LogFields }[] = [],
  ) {
    this.#fields = fields;
    this.lines = lines;
  }

  debug(fields: LogFields, message: string): void {
    this.#log("debug", fields, message);
  }

  info(fields: LogFields, message: string): void {
    this.#log("info", fields, message);
  }

  warn(fields: LogFields, message: string): void {
    this.#log("warn", fields, message);
  }

  error(fields: LogFields, message: string): void {
    this.#log("error", fields, message);
  }

  child(fields: LogFields): Logger {
    return new MemoryLogger({ ...this.#fields, ...fields }, this.lines);
  }

  #log(level: string, fields: LogFields, message: string): void {
    this.lines.push({ level, message, fields: { ...this.#fields, ...fields } });
  }
}

/** Counters, gauges and histogram sums in a plain map; `value` reads one series. */
export class MemoryMetrics<T extends Record<string, MetricDefinition>> implements Metrics<T> {
  readonly series = new Map<string, number>();

  value(name: keyof T & string, labels: Labels = {}): number | undefined {
    return this.series.get(seriesKey(name, labels));
  }

  counter(name: keyof T & string, labels: Labels = {}): Counter {
    return { add: (value = 1) => this.#add(name, labels, value) };
  }

  gauge(name: keyof T & string, labels: Labels = {}): Gauge {
    return {
      set: (value) => this.series.set(seriesKey(name, labels), value),
      add: (value) => this.#add(name, labels, value),
    };
  }

  histogram(name: keyof T & string, labels: Labels = {}): Histogram {
    return { observe: (value) => this.#add(name, labels, value) };
  }

  remove(name: keyof T & string, labels: Labels): void {
    this.series.delete(seriesKey(name, labels));
  }

  #add(name: string, labels: Labels, value: number): void {
    const key = seriesKey(name, labels);
    this.series.set(key, (this.series.get(key) ?? 0) + value);
  }
}

function seriesKey(name: string, labels: Labels): string {
  const parts = Object.entries(labels).sort(([left], [right]) => (left < right ? -1 : 1));
  return `${name}{${parts.map(([key, value]) => `${key}=${value}`).join(",")}}`;
}
