import { batonError } from "@baton/domain";
import { invariant } from "@baton/kit";
import type { EngineCall, EngineClient, EngineExchange, EngineHandler, Logger } from "@baton/ports";
import { Exchange } from "./exchange.ts";
import { fetchText } from "./fetch-text.ts";
import { WorkerPool } from "./worker-pool.ts";

/** uvicorn, under vLLM and SGLang, closes an idle connection after 5 s; ours must be gone before. */
export const keepAliveIdleMsMax = 4_500;

export interface EngineCredentials {
  readonly bearerToken?: string;
  /** Certificates to trust instead of the system's, PEM. */
  readonly caPem?: string;
}

export interface EngineClientOptions {
  /** Asked per call, so that a rotated token or CA takes effect at once; null: none. */
  readonly credentials: (workerId: string) => EngineCredentials | null;
  readonly connectTimeoutMs: number;
  /** How long a connection is kept for reuse; at most `keepAliveIdleMsMax`. */
  readonly keepAliveIdleMs: number;
  /** Exchanges in flight per worker and URL; one more is refused with BATON_SATURATED. */
  readonly connectionsPerWorkerMax: number;
  readonly logger: Logger;
}

export interface EngineHttpClient extends EngineClient {
  /** For a worker that is gone: idle connections close now, the others when their answer ends. */
  forget(workerId: string): void;
}

/**
 * `EngineClient` over undici, HTTP/1.1, one pool per (worker, URL). Calls of the handler are never
 * made from inside `dispatch`, `abort`, `pause` or `resume`. Timeouts are those of the call alone;
 * beyond 1 s they fire up to 1 s late (undici's coarse timers); 0 means none.
 */
export function createEngineClient(options: EngineClientOptions): EngineHttpClient {
  const { keepAliveIdleMs, connectionsPerWorkerMax } = options;
  invariant(
    keepAliveIdleMs > 0 && keepAliveIdleMs <= keepAliveIdleMsMax,
    `keepAliveIdleMs is in 1..${keepAliveIdleMsMax}, got ${keepAliveIdleMs}`,
  );
  invariant(connectionsPerWorkerMax > 0, "connectionsPerWorkerMax is positive");
  return new UndiciEngineClient(options);
}

class UndiciEngineClient implements EngineHttpClient {
  readonly #options: EngineClientOptions;
  /** Worker id → URL → pool. */
  readonly #workers = new Map<string, Map<string, WorkerPool>>();
  /** Pools of forgotten workers and old certificates, until their last answer ends. */
  readonly #closing = new Set<WorkerPool>();
  #isClosed = false;

  constructor(options: EngineClientOptions) {
    this.#options = options;
  }

  dispatch(call: EngineCall, handler: EngineHandler): EngineExchange {
    const exchange = new Exchange(call, handler, this.#options.logger);
    const where = `worker ${call.workerId} at ${call.url}`;
    if (this.#isClosed) {
      exchange.refuse(batonError("BATON_DRAINING", `${where}: the engine client is closed`));
      return exchange;
    }
    const credentials = this.#options.credentials(call.workerId);
    const pool = this.#pool(call.workerId, call.url, credentials?.caPem);
    if (pool === null) {
      exchange.refuse(batonError("BATON_ENGINE_UNREACHABLE", `${where}: this is no HTTP origin`));
      return exchange;
    }
    const limit = this.#options.connectionsPerWorkerMax;
    if (pool.exchangesInFlight >= limit) {
      const what = `${limit} exchanges are in flight, the limit`;
      exchange.refuse(batonError("BATON_SATURATED", `${where}: ${what}`));
      return exchange;
    }
    exchange.start(pool, credentials?.bearerToken);
    return exchange;
  }

  fetchText(call: Parameters<EngineClient["fetchText"]>[0]): ReturnType<EngineClient["fetchText"]> {
    return fetchText(this, call);
  }

  forget(workerId: string): void {
    const urls = this.#workers.get(workerId);
    if (urls === undefined) return;
    this.#workers.delete(workerId);
    for (const pool of urls.values()) this.#retire(pool);
    this.#options.logger.debug({ workerId }, "engine connection pools of the worker closed");
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const pools = [...this.#workers.values()].flatMap((urls) => [...urls.values()]);
    this.#workers.clear();
    await Promise.all([...pools, ...this.#closing].map((pool) => pool.destroy()));
  }

  #pool(workerId: string, url: string, caPem: string | undefined): WorkerPool | null {
    const urls = this.#workers.get(workerId) ?? new Map<string, WorkerPool>();
    const old = urls.get(url);
    if (old !== undefined && old.caPem === caPem) return old;
    if (!isOrigin(url)) return null;
    this.#workers.set(workerId, urls);
    const pool = new WorkerPool({ ...this.#options, url, caPem });
    urls.set(url, pool);
    if (old !== undefined) this.#retire(old);
    this.#options.logger.debug({ workerId, url }, "engine connection pool opened");
    return pool;
  }

  #retire(pool: WorkerPool): void {
    this.#closing.add(pool);
    void pool.close().then(() => this.#closing.delete(pool));
  }
}

function isOrigin(url: string): boolean {
  const parsed = URL.parse(url);
  return (
    parsed !== null &&
    (parsed.protocol === "http:" || parsed.protocol === "https:") &&
    parsed.pathname === "/" &&
    parsed.search === "" &&
    parsed.hash === ""
  );
}
