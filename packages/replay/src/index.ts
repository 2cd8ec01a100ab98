export { type BlockUsage, blockUsage } from "./block-usage.ts";
export { buildReport, isReplayOk, type ReplayReport, type ReportInput } from "./build-report.ts";
export {
  type EngineFigures,
  type EngineSnapshot,
  engineFigures,
  type ReplayEngine,
  type WorkerFigures,
} from "./engine-figures.ts";
export { type EngineCounts, parseEngineMetrics } from "./engine-metrics.ts";
export { formatReport } from "./format-report.ts";
export { generateTrace } from "./generate-trace.ts";
export { type Percentiles, percentile, percentilesOf } from "./percentiles.ts";
export { createProgressReporter } from "./progress-reporter.ts";
export { readTrace, type TraceSource } from "./read-trace.ts";
export type { ReplayProgress, ReplayRun, RowResult } from "./replay-tally.ts";
export { type ReplayMode, type ReplayOptions, runReplay } from "./run-replay.ts";
export { type FetchBytes, fetchBytes, scrapeEngines } from "./scrape-engines.ts";
export {
  type SynthesisOptions,
  synthesizeTokens,
  type TokenRange,
  vocabularyDefault,
} from "./synthesize-tokens.ts";
export { type TraceRow, traceBlockTokens } from "./trace-row.ts";
