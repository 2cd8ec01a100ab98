/** What a replay reads of one engine; null: the engine does not say. Counts since its start. */
export interface EngineCounts {
  readonly queriedTokens: number | null;
  readonly cachedTokens: number | null;
  readonly computedTokens: number | null;
  readonly movedBytes: number | null;
}

/** Reads vLLM's names (also the simulated engine's) out of a Prometheus text, summed over ranks. */
export function parseEngineMetrics(text: string): EngineCounts {
  return {
    queriedTokens: sum(text, "vllm:prefix_cache_queries_total"),
    cachedTokens: sum(text, "vllm:prefix_cache_hits_total"),
    computedTokens: sum(text, "vllm:prompt_tokens_by_source_total", 'source="local_compute"'),
    movedBytes: sum(text, "vllm:nixl_bytes_transferred_sum"),
  };
}

/** Sum over the series of a name whose labels hold `label`; null when there is none. */
function sum(text: string, name: string, label = ""): number | null {
  let total: number | null = null;
  for (const line of text.split("\n")) {
    if (!line.startsWith(name)) continue;
    const next = line[name.length];
    if (next !== "{" && next !== " ") continue;
    const labelsEnd = next === "{" ? line.lastIndexOf("}") : name.length - 1;
    if (!line.slice(0, labelsEnd + 1).includes(label)) continue;
    const value = Number(
      line
        .slice(labelsEnd + 1)
        .trim()
        .split(" ")[0],
    );
    if (Number.isFinite(value)) total = (total ?? 0) + value;
  }
  return total;
}
