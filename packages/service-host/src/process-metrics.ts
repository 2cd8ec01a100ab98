import { monitorEventLoopDelay, PerformanceObserver, performance } from "node:perf_hooks";
import { defineMetrics } from "@baton/ports";
import { createMetrics, type MetricsText } from "./metrics.ts";

/** One per process, whatever runs in it. */
export const processMetricDefinitions = defineMetrics({
  baton_process_cpu_seconds_total: {
    kind: "counter",
    help: "CPU time of the process, by mode (user, system).",
    labels: ["mode"],
  },
  baton_process_resident_memory_bytes: {
    kind: "gauge",
    help: "Resident memory of the process.",
    labels: [],
  },
  baton_process_heap_used_bytes: {
    kind: "gauge",
    help: "JavaScript heap in use.",
    labels: [],
  },
  baton_process_external_memory_bytes: {
    kind: "gauge",
    help: "Memory of buffers and native objects outside the JavaScript heap.",
    labels: [],
  },
  baton_process_event_loop_lag_p99_seconds: {
    kind: "gauge",
    help: "How late timers ran, 99th percentile since the last scrape.",
    labels: [],
  },
  baton_process_event_loop_busy_ratio: {
    kind: "gauge",
    help: "Share of time that the event loop was busy since the last scrape; 1 is saturated.",
    labels: [],
  },
  baton_process_gc_seconds_total: {
    kind: "counter",
    help: "Time in garbage collection.",
    labels: [],
  },
  baton_process_start_time_seconds: {
    kind: "gauge",
    help: "Start of the process, seconds since the epoch.",
    labels: [],
  },
  baton_process_info: {
    kind: "gauge",
    help: "Always 1; versions as labels.",
    labels: ["node", "platform"],
  },
});

const lagResolutionMs = 10;

/** Starts measuring; the probes do not keep the process alive. `close` stops them. */
export function createProcessMetrics(): MetricsText & { close(): void } {
  const lag = monitorEventLoopDelay({ resolution: lagResolutionMs });
  lag.enable();
  let loop = performance.eventLoopUtilization();
  let cpu = { user: 0, system: 0 };
  const metrics = createMetrics(processMetricDefinitions, {
    beforeText() {
      const used = process.cpuUsage();
      const memory = process.memoryUsage();
      for (const mode of ["user", "system"] as const) {
        const seconds = (used[mode] - cpu[mode]) / 1e6;
        metrics.counter("baton_process_cpu_seconds_total", { mode }).add(seconds);
      }
      cpu = used;
      metrics.gauge("baton_process_resident_memory_bytes").set(memory.rss);
      metrics.gauge("baton_process_heap_used_bytes").set(memory.heapUsed);
      metrics.gauge("baton_process_external_memory_bytes").set(memory.external);
      // The histogram holds whole timer periods; what is beyond the period is lag. 0 samples: 0.
      const lagS = lag.count === 0 ? 0 : lag.percentile(99) / 1e9 - lagResolutionMs / 1000;
      metrics.gauge("baton_process_event_loop_lag_p99_seconds").set(Math.max(0, lagS));
      lag.reset();
      const now = performance.eventLoopUtilization();
      const { utilization } = performance.eventLoopUtilization(now, loop);
      metrics.gauge("baton_process_event_loop_busy_ratio").set(utilization);
      loop = now;
    },
  });
  metrics.gauge("baton_process_start_time_seconds").set(performance.timeOrigin / 1000);
  const { platform, versions } = process;
  metrics.gauge("baton_process_info", { node: versions.node, platform }).set(1);
  const collections = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      metrics.counter("baton_process_gc_seconds_total").add(entry.duration / 1000);
    }
  });
  collections.observe({ entryTypes: ["gc"] });
  return Object.assign(metrics, {
    close() {
      lag.disable();
      collections.disconnect();
    },
  });
}
