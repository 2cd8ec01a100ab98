import { absent, known, type Signal, unknown } from "@baton/kit";
import { parsePrometheus, type Sample } from "./prometheus-text.ts";

/** What an engine says of itself. Absent: it answered without the series. Unknown: never heard. */
export interface EngineSignals {
  /** Start of the engine's process, seconds since the epoch: tells incarnations apart. */
  readonly processStartS: Signal<number>;
  readonly requestsRunning: Signal<number>;
  readonly requestsWaiting: Signal<number>;
  /** 0..1; blocks pinned for a pull count, cached free ones do not. */
  readonly kvUsageRatio: Signal<number>;
  readonly kvCapacityTokens: Signal<number>;
  readonly blockSizeTokens: Signal<number>;
  readonly preemptionsTotal: Signal<number>;
}

export const noSignals: EngineSignals = {
  processStartS: unknown,
  requestsRunning: unknown,
  requestsWaiting: unknown,
  kvUsageRatio: unknown,
  kvCapacityTokens: unknown,
  blockSizeTokens: unknown,
  preemptionsTotal: unknown,
};

/** Without these a worker is judged by our own accounting alone, and a metric says so. */
export const requiredSignals = ["requestsRunning", "requestsWaiting", "kvUsageRatio"] as const;

/** Names by age, newest first: vLLM renamed some, and fleets run several versions at once. */
const names = {
  processStartS: ["process_start_time_seconds"],
  requestsRunning: ["vllm:num_requests_running"],
  requestsWaiting: ["vllm:num_requests_waiting"],
  kvUsageRatio: ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
  preemptionsTotal: ["vllm:num_preemptions_total", "vllm:num_preemptions"],
  cacheConfig: ["vllm:cache_config_info"],
} as const;

const wanted: ReadonlySet<string> = new Set(Object.values(names).flat());

/** Reads vLLM's `/metrics` (0.10 to 0.32). `nowMs`: when the scrape was made. */
export function readVllmSignals(text: string, nowMs: number): EngineSignals {
  const found = parsePrometheus(text, wanted);
  const samplesOf = (key: keyof typeof names): readonly Sample[] | undefined =>
    names[key].map((name) => found.get(name)).find((samples) => samples !== undefined);
  const total = (key: keyof typeof names): Signal<number> => {
    const samples = samplesOf(key);
    if (samples === undefined) return absent;
    return known(
      samples.reduce((sum, sample) => sum + sample.value, 0),
      nowMs,
    );
  };
  const usage = samplesOf("kvUsageRatio");
  const config = samplesOf("cacheConfig")?.[0]?.labels ?? {};
  const blockSizeTokens = positiveInteger(config["block_size"]);
  const blocks = positiveInteger(config["num_gpu_blocks"]);
  return {
    processStartS: total("processStartS"),
    requestsRunning: total("requestsRunning"),
    requestsWaiting: total("requestsWaiting"),
    kvUsageRatio:
      usage === undefined ? absent : known(Math.max(...usage.map((each) => each.value)), nowMs),
    kvCapacityTokens:
      blockSizeTokens === null || blocks === null
        ? absent
        : known(blockSizeTokens * (blocks - 1), nowMs), // one block is vLLM's null block
    blockSizeTokens: blockSizeTokens === null ? absent : known(blockSizeTokens, nowMs),
    preemptionsTotal: total("preemptionsTotal"),
  };
}

function positiveInteger(text: string | undefined): number | null {
  const value = Number(text);
  return Number.isInteger(value) && value > 0 ? value : null;
}
