import assert from "node:assert/strict";
import { defineMetrics } from "@baton/ports";
import {
  createMetrics,
  createProcessMetrics,
  joinMetrics,
  type MetricsText,
  processMetricDefinitions,
  renderMetricsDoc,
  selfMetricDefinitions,
} from "@baton/service-host";
import fc from "fast-check";
import t from "tap";

const definitions = defineMetrics({
  baton_requests_total: { kind: "counter", help: "Requests.", labels: ["outcome"] },
  baton_queue_tokens: { kind: "gauge", help: "Queued tokens.", labels: [] },
  baton_ttft_seconds: { kind: "histogram", help: "TTFT.", labels: [], buckets: [0.1, 1] },
  baton_leg_seconds: { kind: "histogram", help: "Leg.", labels: ["leg", "worker"], buckets: [1] },
});

/** Series with their values, without the comment lines and the metrics about metrics. */
async function series(metrics: Pick<MetricsText, "text">): Promise<Record<string, string>> {
  const lines = (await metrics.text()).split("\n");
  const values = lines.filter((line) => line !== "" && !line.startsWith("#"));
  return Object.fromEntries(
    values
      .map((line) => line.split(/ (?=\S+$)/) as [string, string])
      .filter(([name]) => !name.startsWith("baton_metrics_")),
  );
}

t.test(
  "a series without labels exists from birth, one with labels from the first call",
  async (t) => {
    const metrics = createMetrics(definitions);
    t.strictSame(await series(metrics), {
      baton_queue_tokens: "0",
      'baton_ttft_seconds_bucket{le="0.1"}': "0",
      'baton_ttft_seconds_bucket{le="1"}': "0",
      'baton_ttft_seconds_bucket{le="+Inf"}': "0",
      baton_ttft_seconds_sum: "0",
      baton_ttft_seconds_count: "0",
    });
    metrics.counter("baton_requests_total", { outcome: "done" });
    metrics.histogram("baton_leg_seconds", { leg: "prefill", worker: "p0" });
    t.match(await series(metrics), {
      'baton_requests_total{outcome="done"}': "0",
      'baton_leg_seconds_count{leg="prefill",worker="p0"}': "0",
    });
  },
);

t.test("values arrive under their labels, beside the default labels", async (t) => {
  const metrics = createMetrics(definitions, { defaultLabels: { service: "frontend" } });
  const done = metrics.counter("baton_requests_total", { outcome: "done" });
  t.equal(
    done,
    metrics.counter("baton_requests_total", { outcome: "done" }),
    "the same instrument",
  );
  done.add();
  done.add(2);
  metrics.gauge("baton_queue_tokens").set(7);
  metrics.gauge("baton_queue_tokens").add(-2);
  for (const value of [0.05, 0.5, 5]) metrics.histogram("baton_ttft_seconds").observe(value);
  metrics.histogram("baton_leg_seconds", { worker: "p0", leg: "prefill" }).observe(0.5);
  const found = await series(metrics);
  t.match(found, {
    'baton_requests_total{outcome="done",service="frontend"}': "3",
    'baton_queue_tokens{service="frontend"}': "5",
    'baton_ttft_seconds_bucket{le="1",service="frontend"}': "2",
    'baton_ttft_seconds_count{service="frontend"}': "3",
    'baton_ttft_seconds_sum{service="frontend"}': "5.55",
  });
  const leg = Object.keys(found).filter((name) => name.startsWith("baton_leg_seconds_count"));
  t.equal(leg.length, 1);
  t.match(leg[0], 'leg="prefill"');
});

t.test("any use agrees with a plain map, also over the cap and after removals", async () => {
  const outcome = fc.constantFrom(
    "a",
    "b",
    "c",
    "d",
    "e",
    'quo"te',
    "back\\slash",
    "li\nne",
    "ünï",
  );
  const command = fc.oneof(
    fc.record({ kind: fc.constant("add" as const), outcome, by: fc.integer({ min: 0, max: 9 }) }),
    fc.record({ kind: fc.constant("remove" as const), outcome, by: fc.constant(0) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(command, { maxLength: 60 }), async (commands) => {
      const seriesMax = 4;
      const metrics = createMetrics(definitions, { seriesMax });
      const model = new Map<string, number>();
      let other: number | undefined;
      let overflows = 0;
      for (const { kind, outcome, by } of commands) {
        if (kind === "remove") {
          metrics.remove("baton_requests_total", { outcome });
          model.delete(outcome);
          continue;
        }
        metrics.counter("baton_requests_total", { outcome }).add(by);
        if (model.has(outcome) || model.size < seriesMax) {
          model.set(outcome, (model.get(outcome) ?? 0) + by);
        } else {
          other = (other ?? 0) + by;
          overflows++;
        }
      }
      const escaped = (value: string) =>
        value.replace(/\\/g, "\\\\").replace(/\n/g, "\\n").replace(/"/g, '\\"');
      const expected = [...model].map(([value, count]) => [escaped(value), `${count}`]);
      if (other !== undefined) expected.push(["other", `${other}`]);
      const text = await metrics.text();
      const found = [...text.matchAll(/^baton_requests_total\{outcome="(.*)"\} (\d+)$/gm)];
      assert.deepEqual(found.map(([, value, count]) => [value, count]).sort(), expected.sort());
      const counted = /^baton_metrics_overflow_total\{metric="baton_requests_total"\} (\d+)$/m.exec(
        text,
      );
      assert.equal(Number(counted?.[1] ?? 0), overflows, "each turned away is counted");
    }),
    { numRuns: 100 },
  );
});

t.test("an instrument whose series was removed writes nothing", async (t) => {
  const metrics = createMetrics(definitions);
  const gone = metrics.counter("baton_requests_total", { outcome: "done" });
  gone.add(5);
  metrics.remove("baton_requests_total", { outcome: "done" });
  gone.add(1);
  t.notOk('baton_requests_total{outcome="done"}' in (await series(metrics)));
  metrics.counter("baton_requests_total", { outcome: "done" }).add(2);
  t.match(await series(metrics), { 'baton_requests_total{outcome="done"}': "2" });
});

t.test("a bad value is dropped and counted, never thrown", async (t) => {
  const metrics = createMetrics(definitions);
  const done = metrics.counter("baton_requests_total", { outcome: "done" });
  for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, -1]) done.add(bad);
  metrics.histogram("baton_ttft_seconds").observe(Number.NaN);
  metrics.gauge("baton_queue_tokens").set(Number.NaN);
  const text = await metrics.text();
  t.match(text, /^baton_requests_total\{outcome="done"\} 0$/m);
  t.match(text, /^baton_metrics_bad_values_total\{metric="baton_requests_total"\} 3$/m);
  t.match(text, /^baton_metrics_bad_values_total\{metric="baton_ttft_seconds"\} 1$/m);
  t.match(text, /^baton_queue_tokens nan$/im, "a gauge may be unknown");
});

t.test("a call that breaks the declaration throws", (t) => {
  const metrics = createMetrics(definitions);
  const loose = metrics as unknown as ReturnType<typeof createMetrics<Record<string, never>>>;
  t.throws(() => loose.counter("baton_other_total"), /no metric is called baton_other_total/);
  t.throws(() => metrics.gauge("baton_requests_total", { outcome: "x" }), /is a counter/);
  t.throws(() => metrics.counter("baton_requests_total"), /needs the label outcome/);
  t.throws(
    () => metrics.counter("baton_requests_total", { outcome: "x", more: "y" }),
    /has no label more/,
  );
  t.throws(() => metrics.remove("baton_queue_tokens", {}), /one series, which stays/);
  t.end();
});

t.test("names, labels and buckets are checked at birth", (t) => {
  const labels: string[] = [];
  const gauge = { kind: "gauge", help: "x", labels } as const;
  const cases: [Parameters<typeof createMetrics>[0], RegExp][] = [
    [{ queue_tokens: gauge }, /names are baton_/],
    [{ baton_Queue_tokens: gauge }, /names are baton_/],
    [{ baton_queue: gauge }, /must end in its unit/],
    [{ baton_wait_ms: gauge }, /must end in its unit/],
    [{ baton_requests: { ...gauge, kind: "counter" } }, /must end in _total/],
    [{ baton_x_total: gauge }, /must end in its unit/],
    [{ baton_x_bytes: { ...gauge, help: " " } }, /has no help/],
    [{ baton_x_bytes: { ...gauge, labels: ["le"] } }, /bad label le/],
    [{ baton_x_bytes: { ...gauge, labels: ["a", "a"] } }, /a label twice/],
    [{ baton_x_bytes: { ...gauge, labels: ["service"] } }, /is a default label/],
    [{ baton_x_seconds: { ...gauge, kind: "histogram", buckets: [] } }, /0 buckets/],
    [{ baton_x_seconds: { ...gauge, kind: "histogram", buckets: [2, 1] } }, /must ascend/],
  ];
  for (const [bad, message] of cases) {
    t.throws(() => createMetrics(bad, { defaultLabels: { service: "x" } }), message);
  }
  const legs = { legs_total: { kind: "counter", help: "x", labels } } as const;
  t.ok("baton_legs_total" in createMetrics(legs, { prefix: "baton_" }).definitions);
  t.end();
});

t.test("the metrics of several services of one process are one scrape", async (t) => {
  const frontend = createMetrics(definitions, { defaultLabels: { service: "frontend" } });
  const scheduler = createMetrics(definitions, { defaultLabels: { service: "decode-scheduler" } });
  const machine = createProcessMetrics();
  t.teardown(() => machine.close());
  frontend.gauge("baton_queue_tokens").set(1);
  scheduler.gauge("baton_queue_tokens").set(2);
  const text = await joinMetrics([machine, frontend, scheduler]).text();
  t.match(
    text,
    '# HELP baton_queue_tokens Queued tokens.\n# TYPE baton_queue_tokens gauge\nbaton_queue_tokens{service="frontend"} 1\nbaton_queue_tokens{service="decode-scheduler"} 2\n',
  );
  const types = text.split("\n").filter((line) => line.startsWith("# TYPE"));
  t.equal(new Set(types).size, types.length, "each metric has one head");
  const samples = text
    .split("\n")
    .filter((line) => /^[a-z]/.test(line))
    .map((line) => line.replace(/ \S+$/, ""));
  t.equal(new Set(samples).size, samples.length, "no series comes twice");
  t.throws(() => joinMetrics([frontend, frontend]), /comes twice/);
  const twin = {
    ...definitions,
    baton_queue_tokens: { ...definitions.baton_queue_tokens, help: "Other." },
  };
  t.throws(() => joinMetrics([frontend, createMetrics(twin)]), /defined in two ways/);
});

t.test("the process tells of its CPU, memory and event loop", async (t) => {
  const machine = createProcessMetrics();
  t.teardown(() => machine.close());
  const number = async (name: string) => Number((await series(machine))[name]);
  t.ok((await number("baton_process_resident_memory_bytes")) > 1e6);
  t.equal(
    await number(
      `baton_process_info{node="${process.versions.node}",platform="${process.platform}"}`,
    ),
    1,
  );
  const before = await number('baton_process_cpu_seconds_total{mode="user"}');
  const untilMs = performance.now() + 30;
  while (performance.now() < untilMs);
  t.ok((await number('baton_process_cpu_seconds_total{mode="user"}')) > before, "CPU time grows");
  const lag = await number("baton_process_event_loop_lag_p99_seconds");
  t.ok(lag >= 0 && lag < 60);
  const busy = await number("baton_process_event_loop_busy_ratio");
  t.ok(busy >= 0 && busy <= 1);
});

t.test("the documentation of metrics lists all and is the same each time", (t) => {
  const doc = renderMetricsDoc("frontend", definitions);
  const reversed = Object.fromEntries(Object.entries(definitions).reverse());
  t.equal(doc, renderMetricsDoc("frontend", reversed), "the order of definition does not matter");
  t.equal(
    doc,
    `## frontend

| Metric | Kind | Labels | Meaning |
| --- | --- | --- | --- |
| \`baton_leg_seconds\` | histogram | \`leg\`, \`worker\` | Leg. Buckets: 1. |
| \`baton_queue_tokens\` | gauge |  | Queued tokens. |
| \`baton_requests_total\` | counter | \`outcome\` | Requests. |
| \`baton_ttft_seconds\` | histogram |  | TTFT. Buckets: 0.1, 1. |
`,
  );
  for (const name of Object.keys({ ...processMetricDefinitions, ...selfMetricDefinitions })) {
    t.match(renderMetricsDoc("x", { ...processMetricDefinitions, ...selfMetricDefinitions }), name);
  }
  t.end();
});
