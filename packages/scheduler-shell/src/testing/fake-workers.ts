import { type BatonError, batonError } from "@baton/domain";
import { fail, invariant, type Outcome, ok } from "@baton/kit";
import type { EngineText } from "@baton/ports";

/** What an engine says of itself; a test changes it and the next round of polling sees it. */
export interface FakeWorker {
  isUp: boolean;
  /** Null: it has no such metric. */
  processStartS: number | null;
  models: readonly string[];
  maxModelLenTokens: number;
  blockSizeTokens: number;
  blocks: number;
  running: number;
  waiting: number;
  usageRatio: number;
  hasMetrics: boolean;
  /** Answer to GET /kv_event_sources; null: 404. */
  kvEventSources: string | null;
}

/** Engines of one model as pollers see them, vLLM's endpoints; `answer` is a client's `onFetch`. */
export class FakeWorkers {
  readonly #byId = new Map<string, FakeWorker>();

  constructor(model: string, workerIds: readonly string[]) {
    for (const workerId of workerIds) this.#byId.set(workerId, newWorker(model));
  }

  get(workerId: string): FakeWorker {
    const worker = this.#byId.get(workerId);
    invariant(worker !== undefined, `no worker ${workerId}`);
    return worker;
  }

  readonly answer = (call: {
    readonly workerId: string;
    readonly path: string;
  }): Outcome<EngineText, BatonError> => {
    const worker = this.get(call.workerId);
    if (!worker.isUp) {
      return fail(batonError("BATON_ENGINE_UNREACHABLE", `${call.workerId}: ECONNREFUSED`));
    }
    const text = pageOf(worker, call.path);
    return ok(text === null ? { status: 404, text: "" } : { status: 200, text });
  };
}

function newWorker(model: string): FakeWorker {
  return {
    isUp: true,
    processStartS: 100,
    models: [model],
    maxModelLenTokens: 100_000,
    blockSizeTokens: 16,
    blocks: 10_001,
    running: 0,
    waiting: 0,
    usageRatio: 0,
    hasMetrics: true,
    kvEventSources: JSON.stringify({ "0": { endpoint: "tcp://*:5557" } }),
  };
}

function pageOf(worker: FakeWorker, path: string): string | null {
  switch (path) {
    case "/health":
      return "";
    case "/v1/models": {
      const max_model_len = worker.maxModelLenTokens;
      return JSON.stringify({ data: worker.models.map((id) => ({ id, max_model_len })) });
    }
    case "/version":
      return '{"version":"0.32.0"}';
    case "/metrics":
      return worker.hasMetrics ? metricsOf(worker) : null;
    case "/kv_event_sources":
      return worker.kvEventSources;
    default:
      return null;
  }
}

function metricsOf(worker: FakeWorker): string {
  const { processStartS, blockSizeTokens, blocks, running, waiting, usageRatio } = worker;
  const start = processStartS === null ? "" : `process_start_time_seconds ${processStartS}\n`;
  return `${start}vllm:num_requests_running ${running}
vllm:num_requests_waiting ${waiting}
vllm:kv_cache_usage_perc ${usageRatio}
vllm:cache_config_info{block_size="${blockSizeTokens}",num_gpu_blocks="${blocks}"} 1
`;
}
