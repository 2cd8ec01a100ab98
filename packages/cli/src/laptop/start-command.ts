import { writeFileSync } from "node:fs";
import type { BatonError } from "@baton/domain";
import { type Outcome, ok } from "@baton/kit";
import type { ReplayEngine, TraceRow } from "@baton/replay";
import type { WorkerSettings } from "@baton/scheduler-shell";
import { createLogger, errorText, exitCodeOf, exitConfig } from "@baton/service-host";
import { type Laptop, openLaptop } from "./laptop.ts";
import { describeOwnEngines, type OwnEngines } from "./own-engines.ts";
import { loadRows, replay, replayExitCode } from "./replay-run.ts";
import { type SimEngine, startSimEngines, stopSimEngines } from "./sim-engines.ts";
import { parseStartOptions, type StartOptions, startHelp } from "./start-options.ts";
import { showStatus } from "./status-line.ts";
import { stopSignal } from "./stop-signal.ts";

const portDefault = 8000;
const simModel = "sim-model";
const simBlockTokens = 16;
const drainMs = 3_000;
const readyMsMax = 30_000;

/** `npm start`: resolves with the exit code. */
export async function runStart(argv: readonly string[]): Promise<number> {
  const parsed = parseStartOptions(argv);
  if (!parsed.ok) {
    process.stderr.write(`${parsed.error}\n\n${startHelp}`);
    return exitConfig;
  }
  if (parsed.value === "help") {
    process.stdout.write(startHelp);
    return 0;
  }
  const options = parsed.value;
  const rows =
    options.replay === null ? ok([]) : await loadRows(options.replay.trace, options.replay.limit);
  if (!rows.ok) return refuse(rows.error);
  const stop = stopSignal();
  const started = await startEngines(options, rows.value);
  if (!started.ok) {
    stop.close();
    return refuse(started.error);
  }
  const engines = started.value;
  try {
    const laptop = await openLaptop({
      ...engines,
      policy: options.policy,
      speed: engines.sims.length > 0 ? options.speed : 1,
      natsUrl: options.nats,
      port: options.port ?? (options.replay === null ? portDefault : 0),
      adminPort: options.port === null && options.replay === null ? portDefault + 1 : 0,
      host: "127.0.0.1",
      tokenizerMode: "engine",
      logger: createLogger({
        level: options.logLevel,
        pretty: process.stderr.isTTY,
        service: "baton",
      }),
      seed: options.seed,
    });
    if (!laptop.ok) return refuse(laptop.error);
    try {
      return await serve(options, engines, laptop.value, rows.value, stop.signal);
    } finally {
      await laptop.value.drain(drainMs);
    }
  } finally {
    await stopSimEngines(engines.sims);
    stop.close();
  }
}

interface Engines extends OwnEngines {
  readonly sims: readonly SimEngine[];
}

async function startEngines(
  options: StartOptions,
  rows: readonly TraceRow[],
): Promise<Outcome<Engines, BatonError>> {
  if (options.prefillUrls.length > 0) {
    const logger = createLogger({ level: options.logLevel, pretty: true, service: "baton" });
    const own = await describeOwnEngines(options, logger);
    return own.ok ? ok({ ...own.value, sims: [] }) : own;
  }
  const model = options.model ?? simModel;
  const cacheTokens = options.cacheTokens ?? cacheTokensFor(rows);
  const lengths = rows.map((row) => row.inputTokens + row.outputTokens + 1);
  const contextTokens = lengths.reduce((most, each) => Math.max(most, each), 40_960);
  const args = ["--max-model-len", String(Math.min(contextTokens, cacheTokens ?? contextTokens))];
  const sims = await startSimEngines({ ...options, model, cacheTokens, args });
  if (!sims.ok) return sims;
  const workers = sims.value.map(
    (each): WorkerSettings => ({
      workerId: each.workerId,
      url: each.url,
      role: each.role,
      dialect: "vllm",
      connector: "nixl-pull",
      kvEvents: each.role === "prefill" ? { kind: "auto" } : { kind: "off" },
    }),
  );
  return ok({
    model,
    prefillWorkers: workers.filter((each) => each.role === "prefill"),
    decodeWorkers: workers.filter((each) => each.role === "decode"),
    lines: sims.value.map(
      (each) => `${each.workerId}  ${each.role.padEnd(7)}  ${each.url}  simulated, pid ${each.pid}`,
    ),
    sims: sims.value,
  });
}

/** Room for every token of the trace on each engine, and some, so that nothing is evicted. */
function cacheTokensFor(rows: readonly TraceRow[]): number | null {
  if (rows.length === 0) return null;
  const tokens = rows.reduce((sum, row) => sum + row.inputTokens + row.outputTokens, 0);
  return Math.ceil((tokens * 1.1) / simBlockTokens) * simBlockTokens + 65_536;
}

async function serve(
  options: StartOptions,
  engines: Engines,
  laptop: Laptop,
  rows: readonly TraceRow[],
  signal: AbortSignal,
): Promise<number> {
  const missing = await untilReady(laptop, signal);
  const out = options.replay === null ? process.stdout : process.stderr;
  out.write(`${engines.lines.join("\n")}\n`);
  if (signal.aborted) return 0;
  if (missing.length > 0) process.stderr.write(`not ready: ${missing.join("; ")}\n`);
  if (options.replay !== null) {
    if (missing.length > 0) return 1;
    return runTrace(options, engines, laptop, rows, signal);
  }
  out.write(banner(options, engines, laptop));
  const status = showStatus(laptop, process.stdout);
  await new Promise<void>((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener("abort", () => resolve(), { once: true });
  });
  status.stop();
  out.write("stopping …\n");
  return 0;
}

async function runTrace(
  options: StartOptions,
  engines: Engines,
  laptop: Laptop,
  rows: readonly TraceRow[],
  signal: AbortSignal,
): Promise<number> {
  const isSimulated = engines.sims.length > 0;
  const replayEngines = [...engines.prefillWorkers, ...engines.decodeWorkers].filter(
    (each, at, all) => all.findIndex((other) => other.workerId === each.workerId) === at,
  );
  const report = await replay({
    url: laptop.url,
    model: engines.model,
    rows,
    concurrency: options.replay!.concurrency,
    speed: isSimulated ? options.speed : 1,
    engines: replayEngines satisfies readonly ReplayEngine[],
    isSimulated,
    engineBlockTokens: isSimulated ? simBlockTokens : null,
    policy: options.policy,
    limit: options.replay!.limit,
    seeds: { draws: laptop.seed },
    json: options.json,
    apiKey: null,
    signal,
  });
  if (options.decisions !== null) await writeDecisions(laptop, rows.length, options.decisions);
  return replayExitCode(report);
}

async function writeDecisions(laptop: Laptop, rows: number, file: string): Promise<void> {
  const lines: string[] = [];
  for (const url of [laptop.adminUrls.prefill, laptop.adminUrls.decode]) {
    const answer = await fetch(`${url}/debug/decisions?limit=${Math.min(10_000, rows * 2)}`);
    const { records } = (await answer.json()) as { records: unknown[] };
    for (const record of records.reverse()) lines.push(JSON.stringify(record));
  }
  writeFileSync(file, `${lines.join("\n")}\n`);
}

async function untilReady(laptop: Laptop, signal: AbortSignal): Promise<string[]> {
  const untilMs = performance.now() + readyMsMax;
  for (;;) {
    const { status, body } = laptop.frontend.ready();
    const missing = [
      ...laptop.missing(),
      ...(status === 200 ? [] : (body as { missing: string[] }).missing),
    ];
    if (missing.length === 0 || signal.aborted || performance.now() > untilMs) return missing;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

function banner(options: StartOptions, engines: Engines, laptop: Laptop): string {
  const bus = options.nats ?? "embedded bus";
  return `
frontend           ${laptop.url}  (OpenAI API, /metrics, /ready, /debug/decisions)
prefill-scheduler  ${laptop.adminUrls.prefill}  (/metrics, /debug/workers, /debug/decisions)
decode-scheduler   ${laptop.adminUrls.decode}  (the same)
bus                ${bus}

Try it:
  curl -N ${laptop.url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model":"${engines.model}","stream":true,"max_tokens":16,"messages":[{"role":"user","content":"Why split prefill from decode?"}]}'

Ctrl-C drains and stops everything.
`;
}

function refuse(error: BatonError): number {
  process.stderr.write(errorText(error));
  return exitCodeOf(error);
}
