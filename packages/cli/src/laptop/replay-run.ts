import { writeFileSync } from "node:fs";
import type { BatonError } from "@baton/domain";
import { expectedTokens } from "@baton/engine-model";
import { type Outcome, ok } from "@baton/kit";
import {
  blockUsage,
  buildReport,
  createProgressReporter,
  engineFigures,
  fetchBytes,
  formatReport,
  generateTrace,
  isReplayOk,
  type ReplayEngine,
  type ReplayReport,
  readTrace,
  runReplay,
  scrapeEngines,
  type TraceRow,
  vocabularyDefault,
} from "@baton/replay";

export const generatedRows = 60;
const synthesisSeed = 1;

export interface ReplayRunOptions {
  readonly url: string;
  readonly model: string;
  readonly rows: readonly TraceRow[];
  readonly concurrency: number | null;
  readonly speed: number;
  readonly engines: readonly ReplayEngine[];
  /** Simulated engines have one right answer to each prompt. */
  readonly isSimulated: boolean;
  readonly engineBlockTokens: number | null;
  readonly policy: string | null;
  readonly limit: number | null;
  readonly seeds: Readonly<Record<string, number>>;
  readonly json: string | null;
  readonly apiKey: string | null;
  readonly signal: AbortSignal;
}

/** Rows of TRACE, or of the small generated one; nothing is sent when a row is broken. */
export async function loadRows(
  trace: string | null,
  limit: number | null,
): Promise<Outcome<readonly TraceRow[], BatonError>> {
  if (trace !== null) return readTrace({ path: trace }, { limit });
  return ok(generateTrace({ rows: limit ?? generatedRows, seed: synthesisSeed }));
}

/** Sends the rows, prints the report, writes it as JSON when asked. */
export async function replay(options: ReplayRunOptions): Promise<ReplayReport> {
  const { engines, rows, model, signal } = options;
  const synthesis = { vocabulary: vocabularyDefault, seed: synthesisSeed };
  const blocks =
    options.engineBlockTokens === null
      ? null
      : blockUsage(rows, { ...synthesis, engineBlockTokens: options.engineBlockTokens, model });
  const before = await scrapeEngines(fetchBytes, engines);
  const run = await runReplay({
    ...synthesis,
    url: options.url,
    rows,
    model,
    mode:
      options.concurrency === null
        ? { kind: "openLoop" }
        : { kind: "closedLoop", concurrency: options.concurrency },
    speed: options.speed,
    apiKey: options.apiKey,
    expectedText: options.isSimulated
      ? (promptIds, count) => expectedTokens(promptIds, count).texts.join("")
      : null,
    requestTimeoutMs: 3_600_000,
    onProgress: createProgressReporter(process.stderr),
    signal,
  });
  const after = await scrapeEngines(fetchBytes, engines);
  const report = buildReport({
    run,
    engines: engines.length === 0 ? null : engineFigures(before, after, blocks?.counter ?? null),
    idealHitRatio: blocks?.idealHitRatio ?? null,
    policy: options.policy,
    speed: options.speed,
    limit: options.limit,
    seeds: { ...options.seeds, tokens: synthesisSeed },
  });
  process.stdout.write(`${formatReport(report)}\n`);
  if (options.json !== null) writeFileSync(options.json, `${JSON.stringify(report, null, 2)}\n`);
  return report;
}

export function replayExitCode(report: ReplayReport): number {
  return isReplayOk(report) ? 0 : 1;
}
