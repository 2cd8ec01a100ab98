import { parseArgs } from "node:util";
import { fail, type Outcome, ok } from "@baton/kit";
import { type Policy, policies } from "@baton/placement";

export const startHelp = `Everything on this machine: three services on an embedded bus, and engines.

Usage: npm start -- [options]

Simulated engines (default), as processes speaking real HTTP and ZMQ:
  --prefill N              prefill engines (2)
  --decode N               decode engines (2)
  --cache-tokens N         KV cache of each engine, in tokens (large enough that nothing is evicted)
  --speed S                engines and links S times as fast, trace time too (1)

Your own engines (then none is simulated):
  --prefill-url URL        a prefill engine; may be given several times
  --decode-url URL         a decode engine; the same URL in both roles is one aggregated engine
  --kv-events ENDPOINT     ZMQ endpoint of the n-th --prefill-url, e.g. tcp://10.0.0.1:5557
  --model NAME             served model name (asked of the engines)

Replay a trace and exit (0 only if every request ended well, 65 if a row is broken):
  --replay [TRACE]         Mooncake format, JSON lines; without TRACE a small generated one
  --limit N                only the first N rows
  --concurrency N          closed loop with N requests at a time, instead of the trace's times
  --json FILE              the report as JSON
  --decisions FILE         every placement decision, one JSON object a line

Both:
  --policy cost|round-robin   how workers are chosen (cost)
  --nats URL               a real NATS server instead of the embedded bus
  --port N                 port of the OpenAI API (8000; 0 takes a free one)
  --seed N                 seed of the draws that break ties
  --log-level LEVEL        debug, info, warn, error (warn)
  --help
`;

export interface StartOptions {
  readonly prefill: number;
  readonly decode: number;
  readonly cacheTokens: number | null;
  readonly speed: number;
  readonly prefillUrls: readonly string[];
  readonly decodeUrls: readonly string[];
  readonly kvEvents: readonly string[];
  readonly model: string | null;
  /** Null: no replay. */
  readonly replay: {
    readonly trace: string | null;
    readonly limit: number | null;
    readonly concurrency: number | null;
  } | null;
  readonly json: string | null;
  readonly decisions: string | null;
  readonly policy: Policy;
  readonly nats: string | null;
  readonly port: number | null;
  readonly seed: number | null;
  readonly logLevel: "debug" | "info" | "warn" | "error";
}

/** Errors: every problem, one a line. */
export function parseStartOptions(argv: readonly string[]): Outcome<StartOptions | "help", string> {
  let parsed: ReturnType<typeof read>;
  try {
    parsed = read(argv);
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error));
  }
  const { values, positionals } = parsed;
  if (values.help) return ok("help");
  const problems: string[] = [];
  const whole = (
    name: string,
    text: string | undefined,
    min: number,
    max = 1e12,
  ): number | null => {
    if (text === undefined) return null;
    const value = Number(text);
    if (text.trim() !== "" && Number.isInteger(value) && value >= min && value <= max) return value;
    problems.push(`--${name} is a whole number from ${min} to ${max}, not ${JSON.stringify(text)}`);
    return null;
  };
  const speed = Number(values.speed);
  if (!(speed >= 0.01 && speed <= 1_000)) problems.push("--speed is a number from 0.01 to 1000");
  if (!policies.includes(values.policy as Policy)) {
    problems.push(`--policy is ${policies.join(" or ")}, not ${values.policy}`);
  }
  const levels = ["debug", "info", "warn", "error"] as const;
  const logLevel = levels.find((each) => each === values["log-level"]);
  if (logLevel === undefined) problems.push(`--log-level is one of ${levels.join(", ")}`);
  if (!values.replay) {
    for (const name of ["limit", "concurrency", "json", "decisions"] as const) {
      if (values[name] !== undefined) problems.push(`--${name} goes with --replay`);
    }
    for (const each of positionals) problems.push(`unexpected argument ${JSON.stringify(each)}`);
  } else if (positionals.length > 1) problems.push("--replay takes one TRACE");
  checkUrls(values, problems);
  const options: StartOptions = {
    prefill: whole("prefill", values.prefill, 1, 64) ?? 2,
    decode: whole("decode", values.decode, 1, 64) ?? 2,
    cacheTokens: whole("cache-tokens", values["cache-tokens"], 64),
    speed,
    prefillUrls: values["prefill-url"].map(trimmed),
    decodeUrls: values["decode-url"].map(trimmed),
    kvEvents: values["kv-events"],
    model: values.model ?? null,
    replay: values.replay
      ? {
          trace: positionals[0] ?? null,
          limit: whole("limit", values.limit, 1),
          concurrency: whole("concurrency", values.concurrency, 1, 100_000),
        }
      : null,
    json: values.json ?? null,
    decisions: values.decisions ?? null,
    policy: values.policy as Policy,
    nats: values.nats ?? null,
    port: whole("port", values.port, 0, 65_535),
    seed: whole("seed", values.seed, 0, Number.MAX_SAFE_INTEGER),
    logLevel: logLevel ?? "warn",
  };
  return problems.length > 0 ? fail(problems.join("\n")) : ok(options);
}

function read(argv: readonly string[]) {
  return parseArgs({
    args: [...argv],
    options: {
      prefill: { type: "string", default: "2" },
      decode: { type: "string", default: "2" },
      "cache-tokens": { type: "string" },
      speed: { type: "string", default: "1" },
      "prefill-url": { type: "string", multiple: true, default: [] },
      "decode-url": { type: "string", multiple: true, default: [] },
      "kv-events": { type: "string", multiple: true, default: [] },
      model: { type: "string" },
      replay: { type: "boolean", default: false },
      limit: { type: "string" },
      concurrency: { type: "string" },
      json: { type: "string" },
      decisions: { type: "string" },
      policy: { type: "string", default: "cost" },
      nats: { type: "string" },
      port: { type: "string" },
      seed: { type: "string" },
      "log-level": { type: "string", default: "warn" },
      help: { type: "boolean", short: "h", default: false },
    },
    allowPositionals: true,
  });
}

function trimmed(url: string): string {
  return url.replace(/\/+$/, "");
}

function checkUrls(values: ReturnType<typeof read>["values"], problems: string[]): void {
  const prefill = values["prefill-url"].length;
  const decode = values["decode-url"].length;
  if (prefill > 0 !== decode > 0) {
    problems.push(
      "--prefill-url and --decode-url go together (the same URL twice is one aggregated engine)",
    );
  }
  for (const url of [...values["prefill-url"], ...values["decode-url"]]) {
    const parsed = URL.parse(url);
    if (parsed === null || !["http:", "https:"].includes(parsed.protocol)) {
      problems.push(`${url} is not an http or https URL`);
    }
  }
  if (values["kv-events"].length > prefill) problems.push("more --kv-events than --prefill-url");
  for (const each of values["kv-events"]) {
    if (!/^(tcp|ipc):\/\/./.test(each)) problems.push(`--kv-events ${each} is not tcp://HOST:PORT`);
  }
}
