import type { EngineFigures, WorkerFigures } from "./engine-figures.ts";
import { type Percentiles, percentilesOf } from "./percentiles.ts";
import type { ReplayRun, RowResult } from "./replay-tally.ts";

/** In the order of the JSON. All times are trace time except `wallSeconds`. */
export interface ReplayReport {
  readonly requests: number;
  /** Status 200, [DONE] seen, as many tokens as asked for, the expected text. */
  readonly ok: number;
  /** Count by code. */
  readonly errors: Readonly<Record<string, number>>;
  readonly ttftMs: Percentiles;
  readonly itlMs: Percentiles;
  readonly e2eMs: Percentiles;
  readonly hitRatio: number | null;
  readonly idealHitRatio: number | null;
  readonly prefillsPerSharedBlock: number | null;
  readonly workerTokensMaxOverMean: number | null;
  readonly bytesMoved: number | null;
  readonly wallSeconds: number;
  readonly policy: string | null;
  readonly speed: number;
  readonly limit: number | null;
  readonly clientLatenessMs: { readonly p99: number | null };
  readonly perWorker: readonly WorkerFigures[];
  readonly seeds: Readonly<Record<string, number>>;
  /** Mean gap of each request. */
  readonly tpotMs: Percentiles;
  /** First message of each error code. */
  readonly errorExamples: Readonly<Record<string, string>>;
  /** Why a figure is missing. */
  readonly notes: readonly string[];
}

export interface ReportInput {
  readonly run: ReplayRun;
  /** Null when no engine was read. */
  readonly engines: EngineFigures | null;
  readonly idealHitRatio: number | null;
  readonly policy: string | null;
  readonly speed: number;
  readonly limit: number | null;
  readonly seeds: Readonly<Record<string, number>>;
}

/** Latencies are those of the requests that ended well; percentiles are exact (nearest rank). */
export function buildReport(input: ReportInput): ReplayReport {
  const { run, engines } = input;
  const good = run.results.filter((result) => result.failure === null);
  return {
    requests: run.results.length,
    ok: good.length,
    errors: countErrors(run.results),
    ttftMs: rounded(percentilesOf(good.flatMap((result) => result.ttftMs ?? []))),
    itlMs: rounded(percentilesOf(run.itlMs)),
    e2eMs: rounded(percentilesOf(good.map((result) => result.e2eMs))),
    hitRatio: round(engines?.hitRatio ?? null, 4),
    idealHitRatio: round(input.idealHitRatio, 4),
    prefillsPerSharedBlock: round(engines?.prefillsPerSharedBlock ?? null, 3),
    workerTokensMaxOverMean: round(engines?.workerTokensMaxOverMean ?? null, 3),
    bytesMoved: engines?.bytesMoved ?? null,
    wallSeconds: round(run.wallSeconds, 3),
    policy: input.policy,
    speed: input.speed,
    limit: input.limit,
    clientLatenessMs: { p99: round(percentilesOf(run.latenessMs).p99, 2) },
    perWorker: engines?.perWorker ?? [],
    seeds: input.seeds,
    tpotMs: rounded(percentilesOf(good.flatMap((result) => result.tpotMs ?? []))),
    errorExamples: firstMessages(run.results),
    notes: engines?.notes ?? [],
  };
}

/** Whether a replay may exit with 0: every request ended well, and there was one. */
export function isReplayOk(report: ReplayReport): boolean {
  return report.requests > 0 && report.ok === report.requests;
}

function countErrors(results: readonly RowResult[]): Record<string, number> {
  const counts = new Map<string, number>();
  for (const { failure } of results) {
    if (failure !== null) counts.set(failure.code, (counts.get(failure.code) ?? 0) + 1);
  }
  return Object.fromEntries([...counts].sort(([, left], [, right]) => right - left));
}

function firstMessages(results: readonly RowResult[]): Record<string, string> {
  const messages = new Map<string, string>();
  for (const { failure, row } of results) {
    if (failure === null || messages.has(failure.code)) continue;
    messages.set(failure.code, `line ${row.line}: ${failure.message}`);
  }
  return Object.fromEntries(messages);
}

function rounded(of: Percentiles): Percentiles {
  return { p50: round(of.p50, 2), p90: round(of.p90, 2), p99: round(of.p99, 2) };
}

function round<T extends number | null>(value: T, digits: number): T {
  return (value === null ? null : Number(value.toFixed(digits))) as T;
}
