import type { EngineDialect, WorkerRole } from "@baton/domain";
import type { Fleet, FleetChange, Probe } from "@baton/fleet";
import type {
  Bus,
  Clock,
  EngineClient,
  KvEventSource,
  Logger,
  Metrics,
  Timers,
} from "@baton/ports";
import type { KvEventsConfig } from "@baton/worker-watch";
import type { SchedulerMetricDefinitions } from "./scheduler-metrics.ts";

export interface WorkerSettings {
  readonly workerId: string;
  readonly url: string;
  readonly role: WorkerRole;
  readonly dialect: EngineDialect;
  readonly connector: string;
  readonly kvEvents: KvEventsConfig;
}

export interface PoolSettings {
  readonly model: string;
  readonly schedulerId: string;
  readonly workers: readonly WorkerSettings[];
  readonly pollIntervalMs: number;
  readonly pollTimeoutMs: number;
  readonly decisionsKept: number;
}

export interface SchedulerPorts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly logger: Logger;
  readonly metrics: Metrics<SchedulerMetricDefinitions>;
  readonly bus: Bus;
  readonly engineClient: EngineClient;
  /** Null when this pool follows no KV events. */
  readonly kvEventSource: KvEventSource | null;
}

/** What the shell needs of a pool; `PrefillPool` and `DecodePool` have it. */
export interface SchedulerPool {
  readonly fleet: Fleet;
  applyProbe(workerId: string, probe: Probe): FleetChange[];
  releaseOwner(owner: string, nowMs: number): number;
  sweep(nowMs: number): number;
  leasesByWorker(): ReadonlyMap<string, number>;
  indexBlockSizes(): number[];
}
