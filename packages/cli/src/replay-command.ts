import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import type { ReplayEngine } from "@baton/replay";
import { errorText, exitCodeOf, exitConfig } from "@baton/service-host";
import { loadRows, replay, replayExitCode } from "./laptop/replay-run.ts";
import { stopSignal } from "./laptop/stop-signal.ts";

const help = `Sends a trace to a running frontend and reports.

Usage: npm run baton -- replay [TRACE] --url URL --model NAME [options]

  TRACE                    Mooncake format, JSON lines; a small generated one when left out
  --url URL                frontend, e.g. http://127.0.0.1:8000
  --model NAME             served model name
  --prefill-url URL        prefill engine to read figures from; may be given several times
  --decode-url URL         decode engine, the same
  --block-size N           the engines' block size in tokens, for the ideal hit ratio (16)
  --simulated              the engines are engine-sim: check every answer
  --limit N                only the first N rows
  --speed S                trace time divided by S (1)
  --concurrency N          closed loop instead of the trace's times
  --api-key-file FILE      key for the frontend
  --json FILE              the report as JSON
  --help

Exit code 0 only if every request ended well.
`;

export async function runReplayCommand(argv: readonly string[]): Promise<number> {
  let parsed: ReturnType<typeof read>;
  try {
    parsed = read(argv);
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n${help}`);
    return exitConfig;
  }
  const { values, positionals } = parsed;
  if (values.help) {
    process.stdout.write(help);
    return 0;
  }
  const problems: string[] = [];
  const number = (name: string, text: string | undefined): number | null => {
    if (text === undefined) return null;
    const value = Number(text);
    if (!(value > 0)) problems.push(`--${name} is a number above 0, not ${JSON.stringify(text)}`);
    return value;
  };
  const limit = number("limit", values.limit);
  const speed = number("speed", values.speed) ?? 1;
  const concurrency = number("concurrency", values.concurrency);
  const engineBlockTokens = number("block-size", values["block-size"]);
  if (values.url === undefined) problems.push("--url is missing");
  if (values.model === undefined) problems.push("--model is missing");
  if (positionals.length > 1) problems.push("one TRACE at a time");
  if (problems.length > 0) {
    process.stderr.write(`${problems.join("\n")}\n\n${help}`);
    return exitConfig;
  }
  const rows = await loadRows(positionals[0] ?? null, limit);
  if (!rows.ok) {
    process.stderr.write(errorText(rows.error));
    return exitCodeOf(rows.error);
  }
  const engines: ReplayEngine[] = [
    ...values["prefill-url"].map((url, at) => ({
      workerId: `p${at}`,
      url,
      role: "prefill" as const,
    })),
    ...values["decode-url"].map((url, at) => ({
      workerId: `d${at}`,
      url,
      role: "decode" as const,
    })),
  ];
  const keyFile = values["api-key-file"];
  const stop = stopSignal();
  const report = await replay({
    url: values.url!,
    model: values.model!,
    rows: rows.value,
    concurrency,
    speed,
    engines,
    isSimulated: values.simulated,
    engineBlockTokens,
    policy: null,
    limit,
    seeds: {},
    json: values.json ?? null,
    apiKey: keyFile === undefined ? null : readFileSync(keyFile, "utf8").trim(),
    signal: stop.signal,
  });
  stop.close();
  return replayExitCode(report);
}

function read(argv: readonly string[]) {
  return parseArgs({
    args: [...argv],
    options: {
      url: { type: "string" },
      model: { type: "string" },
      "prefill-url": { type: "string", multiple: true, default: [] },
      "decode-url": { type: "string", multiple: true, default: [] },
      "block-size": { type: "string", default: "16" },
      simulated: { type: "boolean", default: false },
      limit: { type: "string" },
      speed: { type: "string", default: "1" },
      concurrency: { type: "string" },
      "api-key-file": { type: "string" },
      json: { type: "string" },
      help: { type: "boolean", short: "h", default: false },
    },
    allowPositionals: true,
  });
}
