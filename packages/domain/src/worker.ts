export type Pool = "prefill" | "decode";

/** `both`: one engine prefills and decodes, nothing is transferred (aggregated). */
export type WorkerRole = "prefill" | "decode" | "both";

export type EngineDialect = "vllm" | "sglang" | "trtllm";

/**
 * One process life of one engine. A restarted engine at the same address is another incarnation:
 * its cache is empty and every lease on the old one is void.
 */
export interface WorkerIdentity {
  readonly workerId: string;
  readonly incarnation: string;
}

/** How to reach a worker. Credentials never travel with it; each process has its own. */
export interface WorkerAddress extends WorkerIdentity {
  /** Scheme, host and port, without a trailing slash. */
  readonly url: string;
  readonly dialect: EngineDialect;
  /** Data-parallel rank to ask for; null asks for none and stays absent on the wire. */
  readonly dpRank: number | null;
}

export function sameWorker(left: WorkerIdentity, right: WorkerIdentity): boolean {
  return left.workerId === right.workerId && left.incarnation === right.incarnation;
}

/** Key for maps; worker ids hold no `@`, which the config schema enforces. */
export function workerKey(worker: WorkerIdentity): string {
  return `${worker.workerId}@${worker.incarnation}`;
}
