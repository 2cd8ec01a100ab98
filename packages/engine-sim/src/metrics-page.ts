import type { EngineModel } from "@baton/engine-model";
import { Exposition } from "./exposition.ts";
import type { RequestMetrics } from "./request-metrics.ts";

export interface MetricsPageInput {
  readonly model: EngineModel;
  readonly metrics: RequestMetrics;
  readonly modelName: string;
  readonly startedWallS: number;
}

/** `/metrics` with the names, labels and order of vLLM 0.32, as far as a simulated engine has them. */
export function metricsPage(input: MetricsPageInput): string {
  const page = new Exposition({ engine: "0", model_name: input.modelName });
  writeProcess(page, input.startedWallS);
  writeTransfers(page, input);
  writeState(page, input);
  writeTokens(page, input);
  writeEnds(page, input);
  for (const [name, histogram] of Object.entries(input.metrics.histograms)) {
    if (!name.startsWith("nixl_")) {
      page.histogram(`vllm:${name}`, `Histogram of ${name.replaceAll("_", " ")}.`, histogram);
    }
  }
  writeCacheConfig(page, input.model);
  return page.text;
}

function counter(page: Exposition, name: string, help: string, value: number): void {
  page.head(name, "counter", help);
  page.series(name, value);
}

function bySource(page: Exposition, name: string, help: string, values: Record<string, number>) {
  page.head(name, "counter", help);
  for (const [source, value] of Object.entries(values)) page.series(name, value, { source });
}

function writeProcess(page: Exposition, startedWallS: number): void {
  const { user, system } = process.cpuUsage();
  page.head("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
  page.raw("process_resident_memory_bytes", process.memoryUsage.rss(), {});
  page.head("process_start_time_seconds", "gauge", "Start time of the process since unix epoch.");
  page.raw("process_start_time_seconds", startedWallS, {});
  page.head("process_cpu_seconds_total", "counter", "Total user and system CPU time in seconds.");
  page.raw("process_cpu_seconds_total", (user + system) / 1e6, {});
}

function writeTransfers(page: Exposition, { model, metrics }: MetricsPageInput): void {
  for (const [name, histogram] of Object.entries(metrics.histograms)) {
    if (name.startsWith("nixl_")) {
      page.histogram(`vllm:${name}`, "NIXL KV cache transfers.", histogram);
    }
  }
  const { exportsExpired, lateNotices } = model.counters;
  const failed = metrics.failedTransfers;
  counter(page, "vllm:nixl_num_failed_transfers_total", "Failed KV transfers.", failed);
  counter(page, "vllm:nixl_num_failed_notifications_total", "Failed notifications.", 0);
  const expiredHelp = "Requests that had their KV expire, counted on the prefill side.";
  counter(page, "vllm:nixl_num_kv_expired_reqs_total", expiredHelp, exportsExpired);
  const lateName = "vllm:nixl_num_notifications_after_expiry_total";
  counter(page, lateName, "Completion notices for KV that was no longer held.", lateNotices);
}

function writeState(page: Exposition, { model }: MetricsPageInput): void {
  const { running, waitingForCapacity: capacity, waitingForTransfer: deferred } = model;
  page.head("vllm:num_requests_running", "gauge", "Requests in model execution batches.");
  page.series("vllm:num_requests_running", running);
  page.head("vllm:num_requests_waiting", "gauge", "Requests waiting to be processed.");
  page.series("vllm:num_requests_waiting", capacity + deferred);
  const byReason = "vllm:num_requests_waiting_by_reason";
  page.head(byReason, "gauge", "Waiting requests by reason.");
  page.series(byReason, capacity, { reason: "capacity" });
  page.series(byReason, deferred, { reason: "deferred" });
  page.head("vllm:engine_sleep_state", "gauge", "Engine sleep state.");
  for (const state of ["awake", "weights_offloaded", "discard_all"]) {
    page.series("vllm:engine_sleep_state", state === "awake" ? 1 : 0, { sleep_state: state });
  }
  page.head("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.");
  page.series("vllm:kv_cache_usage_perc", model.cache.usedBlocks / model.cache.usableBlocks);
}

function writeTokens(page: Exposition, { model }: MetricsPageInput): void {
  const { queriedTokens, hitTokens, transferredTokens, generatedTokens } = model.counters;
  const missed = queriedTokens - hitTokens;
  const computed = missed - transferredTokens;
  const prefix = "Prefix cache, in tokens.";
  counter(page, "vllm:prefix_cache_queries_total", prefix, queriedTokens);
  counter(page, "vllm:prefix_cache_hits_total", prefix, hitTokens);
  const external = "KV connector, in tokens.";
  counter(page, "vllm:external_prefix_cache_queries_total", external, missed);
  counter(page, "vllm:external_prefix_cache_hits_total", external, transferredTokens);
  const preempted = model.counters.preemptions;
  counter(page, "vllm:num_preemptions_total", "Cumulative number of preemptions.", preempted);
  counter(page, "vllm:prompt_tokens_total", "Prefill tokens processed.", queriedTokens);
  bySource(page, "vllm:prompt_tokens_by_source_total", "Prompt tokens by source.", {
    local_compute: computed,
    local_cache_hit: hitTokens,
    external_kv_transfer: transferredTokens,
  });
  const cached = hitTokens + transferredTokens;
  counter(page, "vllm:prompt_tokens_cached_total", "Cached prompt tokens.", cached);
  bySource(page, "vllm:prompt_tokens_cached_by_source_total", "Cached prompt tokens by tier.", {
    device: hitTokens,
    host: 0,
    p2p: transferredTokens,
    disk: 0,
    external_unspecified: 0,
  });
  counter(page, "vllm:generation_tokens_total", "Generation tokens processed.", generatedTokens);
}

function writeEnds(page: Exposition, { metrics, modelName }: MetricsPageInput): void {
  page.head("vllm:request_success_total", "counter", "Processed requests by reason of their end.");
  for (const [reason, count] of Object.entries(metrics.ends)) {
    page.series("vllm:request_success_total", count, { finished_reason: reason });
  }
  const rejected = "vllm:admission_rejections_total";
  page.head(rejected, "counter", "Requests refused at admission.");
  for (const reason of ["max_num_queued_reqs", "max_num_queued_tokens"]) {
    page.raw(rejected, 0, { model_name: modelName, reason });
  }
}

function writeCacheConfig(page: Exposition, { cache }: EngineModel): void {
  const name = "vllm:cache_config_info";
  page.head(name, "gauge", "Information of the LLMEngine CacheConfig");
  page.raw(name, 1, {
    block_size: String(cache.blockSizeTokens),
    cache_dtype: "auto",
    effective_attention_block_size: String(cache.blockSizeTokens),
    enable_prefix_caching: "True",
    engine: "0",
    gpu_memory_utilization: "0.92",
    hash_block_size: "None",
    kv_cache_size_tokens: String((cache.usableBlocks + 1) * cache.blockSizeTokens),
    mamba_block_size: "None",
    num_cpu_blocks: "None",
    num_gpu_blocks: String(cache.usableBlocks + 1),
    num_gpu_blocks_override: "None",
    prefix_caching_hash_algo: "sha256",
    prefix_match_unit: "None",
    sliding_window: "None",
    user_specified_block_size: "True",
  });
}
