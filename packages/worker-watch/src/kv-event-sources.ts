/** Where a worker's KV events come from. */
export type KvEventsConfig =
  /** Ask the engine (`GET /kv_event_sources`); none when it does not say. */
  | { readonly kind: "auto" }
  | { readonly kind: "off" }
  | {
      readonly kind: "endpoint";
      readonly endpoint: string;
      readonly replayEndpoint: string | null;
    };

export interface KvEndpoints {
  readonly endpoint: string;
  readonly replayEndpoint: string | null;
}

/**
 * vLLM's answer to `GET /kv_event_sources`: one entry per data-parallel rank, endpoints as configured
 * there, so `*` stands for the worker's own host. Rank 0 only. Null when events are off or the text is
 * something else.
 */
export function readKvEventSources(text: string, workerUrl: string): KvEndpoints | null {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof answer !== "object" || answer === null) return null;
  const source = (answer as Record<string, unknown>)["0"];
  if (typeof source !== "object" || source === null) return null;
  const { enable_kv_cache_events, publisher, endpoint, replay_endpoint } = source as Record<
    string,
    unknown
  >;
  if (enable_kv_cache_events === false || publisher === "null") return null;
  if (typeof endpoint !== "string" || endpoint === "") return null;
  const host = new URL(workerUrl).hostname;
  const replay =
    typeof replay_endpoint === "string" && replay_endpoint !== "" ? replay_endpoint : null;
  return {
    endpoint: reachable(endpoint, host),
    replayEndpoint: replay === null ? null : reachable(replay, host),
  };
}

function reachable(endpoint: string, host: string): string {
  return endpoint.replace(/^(\w+:\/\/)(?:\*|0\.0\.0\.0|\[::\])(?=:)/, `$1${host}`);
}
