import { parseArgs } from "node:util";
import * as decode from "@baton/decode-scheduler";
import * as frontend from "@baton/frontend";
import * as prefill from "@baton/prefill-scheduler";
import { exitConfig, loadConfig, runService } from "@baton/service-host";

/** Schema and start of each service, for this command, `config check` and the generated docs. */
export const services = {
  frontend: {
    schema: frontend.configSchema,
    run: (options: RunOptions) =>
      runService({
        ...options,
        ...load(frontend.configSchema, options),
        start: frontend.startFrontend,
      }),
  },
  "prefill-scheduler": {
    schema: prefill.configSchema,
    run: (options: RunOptions) =>
      runService({
        ...options,
        ...load(prefill.configSchema, options),
        start: prefill.startPrefillScheduler,
      }),
  },
  "decode-scheduler": {
    schema: decode.configSchema,
    run: (options: RunOptions) =>
      runService({
        ...options,
        ...load(decode.configSchema, options),
        start: decode.startDecodeScheduler,
      }),
  },
} as const;

interface RunOptions {
  readonly name: string;
  readonly file: string | null;
  readonly overrides: Readonly<Record<string, unknown>>;
  readonly dieWithParent: boolean;
}

function load<S extends Parameters<typeof loadConfig>[0]["schema"]>(
  schema: S,
  options: RunOptions,
) {
  const { file, overrides } = options;
  return { config: loadConfig({ schema, file, env: process.env, overrides }) };
}

const help = (name: string) => `Runs the ${name} as a process of its own, on NATS.

Usage: npm run baton -- ${name} --config FILE [--set KEY=VALUE …]

  --config FILE        YAML; every key is in docs/config.md
  --set KEY=VALUE      one key over file and environment, e.g. --set log.level=debug
  --insecure           listen beyond loopback without keys or a token
  --die-with-parent    drain when standard input ends
  --help

Keys can also come from the environment: bus.url is BATON_BUS_URL.
SIGTERM drains and ends. A problem in the configuration: all are listed, exit code 64.
`;

export async function runServiceCommand(
  name: keyof typeof services,
  argv: readonly string[],
): Promise<number> {
  let parsed: ReturnType<typeof readArgs>;
  try {
    parsed = readArgs(argv);
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n\n${help(name)}`);
    return exitConfig;
  }
  if (parsed.help) {
    process.stdout.write(help(name));
    return 0;
  }
  const overrides: Record<string, unknown> = {};
  for (const pair of parsed.set) {
    const at = pair.indexOf("=");
    if (at <= 0) {
      process.stderr.write(`--set takes KEY=VALUE, not ${JSON.stringify(pair)}\n`);
      return exitConfig;
    }
    overrides[pair.slice(0, at)] = pair.slice(at + 1);
  }
  if (parsed.insecure) overrides[name === "frontend" ? "http.insecure" : "admin.insecure"] = true;
  const { config: file, "die-with-parent": dieWithParent } = parsed;
  return services[name].run({ name, file: file ?? null, overrides, dieWithParent });
}

function readArgs(argv: readonly string[]) {
  return parseArgs({
    args: [...argv],
    options: {
      config: { type: "string" },
      set: { type: "string", multiple: true, default: [] },
      insecure: { type: "boolean", default: false },
      "die-with-parent": { type: "boolean", default: false },
      help: { type: "boolean", short: "h", default: false },
    },
  }).values;
}
