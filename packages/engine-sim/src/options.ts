import { parseArgs } from "node:util";
import {
  type EngineProfile,
  engineModelDefaults,
  engineProfileNameDefault,
  engineProfiles,
  findEngineProfile,
} from "@baton/engine-model";
import { fail, type Outcome, ok } from "@baton/kit";
import { hashesPerPlanMax } from "@baton/kv-blocks";

export interface EngineSimOptions {
  readonly role: "prefill" | "decode" | "both";
  readonly model: string;
  readonly host: string;
  /** What handles and the ready line name; `host` unless that is a wildcard. */
  readonly advertisedHost: string;
  readonly port: number;
  readonly profile: EngineProfile;
  /** Divides engine times and multiplies link rates. Leases and time-outs stay wall time. */
  readonly speed: number;
  readonly cacheTokens: number;
  readonly blockSizeTokens: number;
  readonly contextTokensMax: number;
  readonly linkBytesPerSecond: number;
  readonly leaseMs: number;
  readonly handshakeTimeoutMs: number;
  readonly sideChannelPort: number;
  /** Null: no cache events. */
  readonly kvEvents: {
    readonly port: number;
    readonly replayPort: number;
    readonly topic: string;
  } | null;
  /** For ids in answers; null: random. Block hashes and engine id differ per start regardless. */
  readonly seed: number | null;
  /** Null: a random one. */
  readonly engineId: string | null;
  readonly tellsCachedTokens: boolean;
  /** A handle that kills a real engine only fails the request. */
  readonly survivesBadHandles: boolean;
  readonly diesWithParent: boolean;
}

const flags = {
  role: { type: "string", default: "both" },
  model: { type: "string", default: "sim-model" },
  host: { type: "string", default: "127.0.0.1" },
  "advertise-host": { type: "string" },
  port: { type: "string", default: "0" },
  profile: { type: "string", default: engineProfileNameDefault },
  speed: { type: "string", default: "1" },
  "cache-tokens": { type: "string" },
  "block-size": { type: "string", default: String(engineModelDefaults.blockSizeTokens) },
  "max-model-len": { type: "string" },
  "link-bytes-per-second": {
    type: "string",
    default: String(engineModelDefaults.linkBytesPerSecond),
  },
  "lease-ms": { type: "string", default: String(engineModelDefaults.leaseMs) },
  "handshake-timeout-ms": { type: "string", default: "5000" },
  "side-channel-port": { type: "string", default: "0" },
  "kv-events-port": { type: "string", default: "0" },
  "kv-replay-port": { type: "string", default: "0" },
  "kv-events": { type: "boolean", default: true },
  topic: { type: "string", default: "" },
  seed: { type: "string" },
  "engine-id": { type: "string" },
  "prompt-tokens-details": { type: "boolean", default: true },
  "survive-bad-handles": { type: "boolean", default: false },
  "die-with-parent": { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

export const engineSimHelp = `One simulated vLLM 0.32 engine: HTTP API, KV cache events, NIXL-like pull. No GPU.

Usage: baton engine-sim [options]

  --role prefill|decode|both     what the ready line says it is for (both)
  --model NAME                   served model name (sim-model)
  --host HOST                    address to listen on (127.0.0.1)
  --advertise-host HOST          address that handles and the ready line name (--host)
  --port N                       HTTP port, 0: any free one (0)
  --profile NAME                 timing and memory of the engine (${engineProfileNameDefault}):
                                 ${engineProfiles.map(({ name }) => name).join("\n                                 ")}
  --speed S                      engine times divided by S, link rate times S (1)
  --cache-tokens N               KV cache capacity (the profile's)
  --block-size N                 tokens per block (16)
  --max-model-len N              longest prompt plus answer (40960, or the cache)
  --link-bytes-per-second N      bandwidth of this engine's pulls, all together (25e9)
  --lease-ms N                   how long a prefilled prompt is kept for a decode engine (30000)
  --handshake-timeout-ms N       how long an unknown engine may take to answer (5000)
  --side-channel-port N          where decode engines read, 0: any free one (0)
  --kv-events-port N             ZMQ PUB port of the cache events, 0: any free one (0)
  --kv-replay-port N             ZMQ ROUTER port of their replay, 0: any free one (0)
  --no-kv-events                 publish none
  --topic TEXT                   topic of the cache events ("")
  --seed N                       makes the ids in answers repeatable
  --engine-id ID                 (random per start)
  --no-prompt-tokens-details     leave cached tokens out of the usage
  --survive-bad-handles          a handle that kills a real engine only fails its request
  --die-with-parent              end when stdin ends or the IPC channel closes
  --help

Prints one line of JSON when ready. SIGTERM: finishes what runs, at most 3 s.
Exit codes: 0 ended as asked, 1 died as a real engine would, 64 bad options.
`;

const contextTokensDefault = 40_960;

/** `help`: the caller prints the help. Errors: every problem, one a line. */
export function parseEngineSimOptions(
  argv: readonly string[],
): Outcome<EngineSimOptions | "help", string> {
  let values: FlagValues;
  try {
    values = readFlags(argv);
  } catch (error) {
    return fail(error instanceof Error ? error.message : String(error));
  }
  if (values.help) return ok("help");
  const reader = new NumberReader();
  const sizes = readSizes(values, reader);
  const port = (name: PortFlag): number => reader.whole(name, values[name], 0, 65_535);
  const wildcardHost = isWildcard(values.host) ? "127.0.0.1" : values.host;
  const options: EngineSimOptions = {
    role: readRole(values.role, reader),
    model: values.model,
    host: values.host,
    advertisedHost: values["advertise-host"] ?? wildcardHost,
    port: port("port"),
    ...sizes,
    speed: reader.number("speed", values.speed, 0.001, 100_000),
    linkBytesPerSecond: reader.number("link-bytes-per-second", values["link-bytes-per-second"], 1),
    leaseMs: reader.whole("lease-ms", values["lease-ms"], 1),
    handshakeTimeoutMs: reader.whole("handshake-timeout-ms", values["handshake-timeout-ms"], 1),
    sideChannelPort: port("side-channel-port"),
    kvEvents: values["kv-events"]
      ? {
          port: port("kv-events-port"),
          replayPort: port("kv-replay-port"),
          topic: values.topic,
        }
      : null,
    seed: values.seed === undefined ? null : reader.whole("seed", values.seed, 0),
    engineId: values["engine-id"] ?? null,
    tellsCachedTokens: values["prompt-tokens-details"],
    survivesBadHandles: values["survive-bad-handles"],
    diesWithParent: values["die-with-parent"],
  };
  return reader.problems.length === 0 ? ok(options) : fail(reader.problems.join("\n"));
}

type FlagValues = ReturnType<typeof readFlags>;
type PortFlag = "port" | "side-channel-port" | "kv-events-port" | "kv-replay-port";
type Sizes = Pick<
  EngineSimOptions,
  "profile" | "cacheTokens" | "blockSizeTokens" | "contextTokensMax"
>;

/** What depends on the profile and on each other: a request fits the cache, always. */
function readSizes(values: FlagValues, reader: NumberReader): Sizes {
  const found = findEngineProfile(values.profile);
  if (found === null) {
    const names = engineProfiles.map(({ name }) => name).join(", ");
    reader.problems.push(`--profile is one of ${names}, not "${values.profile}"`);
  }
  const profile = found ?? engineProfiles[0]!;
  const blockSizeTokens = reader.whole("block-size", values["block-size"], 1, 4096);
  const cacheText = values["cache-tokens"] ?? String(profile.kvTokens);
  const cacheTokens = reader.whole("cache-tokens", cacheText, 2 * blockSizeTokens);
  const blocks = Math.min(Math.floor(cacheTokens / blockSizeTokens), hashesPerPlanMax);
  const room = blocks * blockSizeTokens;
  const contextText = values["max-model-len"] ?? String(Math.min(contextTokensDefault, room));
  const contextTokensMax = reader.whole("max-model-len", contextText, 2, room);
  return { profile, blockSizeTokens, cacheTokens, contextTokensMax };
}

function readRole(text: string, reader: NumberReader): EngineSimOptions["role"] {
  if (text === "prefill" || text === "decode" || text === "both") return text;
  reader.problems.push(`--role is prefill, decode or both, not "${text}"`);
  return "both";
}

/** Reads numbers, collecting what is wrong with them. */
class NumberReader {
  readonly problems: string[] = [];

  number(name: string, text: string, least: number, most = Number.MAX_SAFE_INTEGER): number {
    const value = text.trim() === "" ? Number.NaN : Number(text);
    if (value >= least && value <= most) return value;
    this.problems.push(`--${name} is a number from ${least} to ${most}, not "${text}"`);
    return least;
  }

  whole(name: string, text: string, least: number, most?: number): number {
    const value = this.number(name, text, least, most);
    if (!Number.isInteger(value)) {
      this.problems.push(`--${name} is a whole number, not "${text}"`);
    }
    return value;
  }
}

function readFlags(argv: readonly string[]) {
  const args = [...argv];
  return parseArgs({ args, options: flags, strict: true, allowNegative: true }).values;
}

function isWildcard(host: string): boolean {
  return host === "0.0.0.0" || host === "::";
}
