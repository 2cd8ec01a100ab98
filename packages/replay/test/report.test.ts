import { readFileSync } from "node:fs";
import { hashToBigInt } from "@baton/kit";
import { hashBlocks, namespaceRoot } from "@baton/kv-blocks";
import t from "tap";
import {
  blockUsage,
  buildReport,
  createProgressReporter,
  type EngineSnapshot,
  engineFigures,
  formatReport,
  isReplayOk,
  parseEngineMetrics,
  type ReplayRun,
  scrapeEngines,
  synthesizeTokens,
  type TraceRow,
  vocabularyDefault,
} from "../src/index.ts";

const synthesis = { seed: 1, vocabulary: vocabularyDefault };

function makeRow(hashIds: readonly number[], inputTokens: number, more: Partial<TraceRow> = {}) {
  const rest = { line: 1, timestampMs: 0, outputTokens: 1, sessionId: null, delayMs: null };
  return { ...rest, hashIds, inputTokens, ...more };
}

t.test("metrics of a real engine are read; what it does not have is null", (t) => {
  const text = readFileSync(new URL("vectors/vllm-metrics.txt", import.meta.url), "utf8");
  t.same(parseEngineMetrics(text), {
    queriedTokens: 1638,
    cachedTokens: 320,
    computedTokens: 136,
    movedBytes: 770048,
  });
  t.same(parseEngineMetrics(`${text}${text.replaceAll('engine="0"', 'engine="1"')}`), {
    queriedTokens: 3276,
    cachedTokens: 640,
    computedTokens: 272,
    movedBytes: 1540096,
  });
  t.same(parseEngineMetrics("vllm:prefix_cache_hits_total 3\n"), {
    queriedTokens: null,
    cachedTokens: 3,
    computedTokens: null,
    movedBytes: null,
  });
  t.end();
});

const noCounts = {
  queriedTokens: null,
  cachedTokens: null,
  computedTokens: null,
  movedBytes: null,
};

function snapshot(workerId: string, role: "prefill" | "decode", counts: object): EngineSnapshot {
  return {
    workerId,
    role,
    url: `http://${workerId}`,
    counts: { ...noCounts, ...counts },
    computedBlocks: null,
  };
}

t.test("figures are the differences of the right pools, by hand", (t) => {
  const before = [
    snapshot("p1", "prefill", { queriedTokens: 100, cachedTokens: 10, computedTokens: 90 }),
    snapshot("p2", "prefill", { queriedTokens: 0, cachedTokens: 0 }),
    snapshot("d1", "decode", { queriedTokens: 7, cachedTokens: 7, movedBytes: 1_000 }),
  ];
  const after = [
    snapshot("p1", "prefill", { queriedTokens: 500, cachedTokens: 110, computedTokens: 390 }),
    snapshot("p2", "prefill", { queriedTokens: 100, cachedTokens: 0, computedTokens: 100 }),
    snapshot("d1", "decode", { queriedTokens: 900, cachedTokens: 900, movedBytes: 6_000 }),
  ];
  t.same(engineFigures(before, after, null), {
    hitRatio: 100 / 500,
    prefillsPerSharedBlock: null,
    workerTokensMaxOverMean: 300 / 200,
    bytesMoved: 5_000,
    perWorker: [
      { workerId: "p1", computedTokens: 300, cachedTokens: 100 },
      { workerId: "p2", computedTokens: 100, cachedTokens: 0 },
    ],
    notes: [],
  });
  t.end();
});

t.test("a figure is null, with a note, when an engine is silent or restarted", (t) => {
  const whole = { queriedTokens: 10, cachedTokens: 5, computedTokens: 5 };
  const before = [snapshot("p1", "prefill", whole), snapshot("p2", "prefill", whole)];
  const silent = { ...snapshot("p2", "prefill", {}), counts: null };
  const restarted = snapshot("p2", "prefill", { ...whole, queriedTokens: 1, cachedTokens: 0 });
  for (const [second, note] of [
    [silent, "worker p2: no metrics from http://p2/metrics"],
    [restarted, "worker p2: its counters went back, it restarted"],
  ] as const) {
    const figures = engineFigures(before, [before[0]!, second], null);
    t.match(figures, { hitRatio: null, bytesMoved: null, notes: [note] });
    t.equal(figures.perWorker[1]?.cachedTokens, null);
  }
  t.end();
});

function ledger(records: ReadonlyMap<bigint, number>): Uint8Array {
  const bytes = new Uint8Array(records.size * 12);
  const view = new DataView(bytes.buffer);
  for (const [index, [hash, times]] of [...records].entries()) {
    view.setBigUint64(index * 12, hash, true);
    view.setUint32(index * 12 + 8, times, true);
  }
  return bytes;
}

t.test(
  "prefills per shared block: the mean over blocks of two rows, summed over workers",
  async (t) => {
    // Two rows share block 1 (32 engine blocks); blocks 2 and 3 belong to one row each.
    const rows = [makeRow([1, 2], 1_024), makeRow([1, 3], 1_024)];
    const usage = blockUsage(rows, { ...synthesis, model: "m", engineBlockTokens: 16 });
    const root = namespaceRoot({ model: "m", loraName: null, cacheSalt: null });
    const hashes = hashBlocks(synthesizeTokens(rows[0]!, synthesis), 16, root);
    const all = Array.from({ length: 64 }, (_, block) => hashToBigInt(hashes, block));
    const times = (from: number, to: number, count: number) =>
      new Map(all.slice(from, to).map((hash) => [hash, count]));
    const bodies = new Map<string, Uint8Array>();
    const fetchBytes = async (url: string) => bodies.get(url) ?? null;
    const engines = ["p1", "p2"].map((workerId) => snapshot(workerId, "prefill", {}));
    bodies.set("http://p1/metrics", Buffer.from("vllm:prefix_cache_hits_total 3\n"));
    bodies.set("http://p1/sim/ledger/computed-blocks", ledger(times(0, 64, 2)));
    bodies.set("http://p2/sim/ledger/computed-blocks", ledger(new Map()));
    const before = await scrapeEngines(fetchBytes, engines);
    t.equal(before[0]?.counts?.cachedTokens, 3);
    t.equal(before[1]?.counts, null);
    bodies.set("http://p1/sim/ledger/computed-blocks", ledger(times(0, 64, 3)));
    bodies.set("http://p2/sim/ledger/computed-blocks", ledger(times(0, 16, 1).set(123n, 9)));
    const after = await scrapeEngines(fetchBytes, engines);
    // Once on p1 for all 32, once more on p2 for the first half.
    t.equal(engineFigures(before, after, usage.counter).prefillsPerSharedBlock, 48 / 32);
    bodies.set("http://p2/sim/ledger/computed-blocks", Buffer.from("no records"));
    const torn = await scrapeEngines(fetchBytes, engines);
    t.equal(torn[1]?.computedBlocks, null);
    t.equal(engineFigures(before, torn, usage.counter).prefillsPerSharedBlock, null);
  },
);

function makeRun(): ReplayRun {
  const row = makeRow([1], 10, { line: 4 });
  const good = { row, failure: null, tpotMs: 5, e2eMs: 100 };
  const busy = { code: "HTTP_503", message: "no worker" };
  return {
    results: [
      { ...good, ttftMs: 10 },
      { ...good, ttftMs: 20 },
      { row, failure: { code: "TIMEOUT", message: "late" }, ttftMs: 1, tpotMs: 1, e2eMs: 1 },
      { row, failure: busy, ttftMs: null, tpotMs: null, e2eMs: 3 },
      { row, failure: busy, ttftMs: null, tpotMs: null, e2eMs: 3 },
    ],
    itlMs: [4, 6, 5],
    latenessMs: [0, 1, 2, 3, 4],
    wallSeconds: 12.34567,
  };
}

t.test("the report counts by hand, and its fields keep their order", (t) => {
  const engines = {
    hitRatio: 0.123456,
    prefillsPerSharedBlock: 1.5,
    workerTokensMaxOverMean: 1.25,
    bytesMoved: 5e9,
    perWorker: [{ workerId: "p1", computedTokens: 1_234_567, cachedTokens: null }],
    notes: ["worker p2: it restarted"],
  };
  const more = { idealHitRatio: 0.2, policy: "kv", speed: 2, limit: 5, seeds: { tokens: 1 } };
  const report = buildReport({ run: makeRun(), engines, ...more });
  t.same(report, {
    requests: 5,
    ok: 2,
    errors: { HTTP_503: 2, TIMEOUT: 1 },
    ttftMs: { p50: 10, p90: 20, p99: 20 },
    itlMs: { p50: 5, p90: 6, p99: 6 },
    e2eMs: { p50: 100, p90: 100, p99: 100 },
    hitRatio: 0.1235,
    idealHitRatio: 0.2,
    prefillsPerSharedBlock: 1.5,
    workerTokensMaxOverMean: 1.25,
    bytesMoved: 5e9,
    wallSeconds: 12.346,
    policy: "kv",
    speed: 2,
    limit: 5,
    clientLatenessMs: { p99: 4 },
    perWorker: engines.perWorker,
    seeds: { tokens: 1 },
    tpotMs: { p50: 5, p90: 5, p99: 5 },
    errorExamples: { TIMEOUT: "line 4: late", HTTP_503: "line 4: no worker" },
    notes: engines.notes,
  });
  const first =
    "requests ok errors ttftMs itlMs e2eMs hitRatio idealHitRatio prefillsPerSharedBlock " +
    "workerTokensMaxOverMean bytesMoved wallSeconds policy speed limit";
  t.equal(
    Object.keys(JSON.parse(JSON.stringify(report)))
      .slice(0, 15)
      .join(" "),
    first,
  );
  t.equal(isReplayOk(report), false);
  t.equal(isReplayOk({ ...report, ok: 5 }), true);
  t.equal(isReplayOk({ ...report, ok: 0, requests: 0 }), false);
  const text = formatReport(report);
  for (const piece of [
    "5 requests, 2 well ended, 3 failed, in 12.3 s at speed 2",
    "time to first token                       10.0        20.0        20.0",
    "cached share of prompt tokens           12.3 %",
    "KV moved between workers                5.0 GB",
    "p1                                   1,234,567           -",
    "       2  HTTP_503: line 4: no worker",
    "worker p2: it restarted",
  ]) {
    t.ok(text.split("\n").includes(piece), `${piece}\n${text}`);
  }
  const none = buildReport({ run: makeRun(), engines: null, ...more, idealHitRatio: null });
  t.match(none, { hitRatio: null, bytesMoved: null, perWorker: [] });
  t.match(formatReport(none), /with one endless cache +-\n/);
  t.end();
});

t.test("progress redraws one line on a terminal and speaks each 5 s elsewhere", (t) => {
  const progress = (done: number, elapsedMs: number) => {
    const [ttftMsP50, etaMs] = done === 0 ? [null, null] : [12.4, 1_500];
    const counts = { total: 4, sent: 4, done, errors: 1 };
    return { ...counts, elapsedMs, etaMs, ttftMsP50, isOver: done === 4 };
  };
  const lines: string[] = [];
  const quiet = createProgressReporter({ write: (text) => lines.push(text) });
  for (const [done, atMs] of [
    [0, 0],
    [1, 250],
    [2, 4_999],
    [2, 5_000],
    [3, 5_250],
    [4, 5_500],
  ] as const) {
    quiet(progress(done, atMs));
  }
  t.same(lines, [
    "[....................] 0/4 done, 4 sent, 1 failed\n",
    "[##########..........] 2/4 done, 4 sent, 1 failed, 2 s left, TTFT p50 12 ms\n",
    "[####################] 4/4 done, 4 sent, 1 failed, 2 s left, TTFT p50 12 ms\n",
  ]);
  lines.length = 0;
  const output = { isTTY: true, columns: 30, write: (text: string) => lines.push(text) };
  const live = createProgressReporter(output);
  live(progress(2, 0));
  live(progress(4, 10));
  t.same(lines, [
    "\r\u001b[2K[##########..........] 2/4 do",
    "\r\u001b[2K[####################] 4/4 do\n",
  ]);
  t.end();
});
