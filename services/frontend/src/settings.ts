import type { Bus, Clock, EngineClient, Logger, Metrics, Timers, Tokenizer } from "@baton/ports";
import type { FrontendMetricDefinitions } from "./metrics.ts";

export interface FrontendConfig {
  readonly frontendId: string;
  /** Distinct in each process life. */
  readonly incarnation: string;
  readonly tokenizerMode: "local" | "engine" | "none";
  readonly requestsLiveMax: number;
  readonly deadlineMs: number;
  readonly attemptsMax: number;
  readonly placeDeadlineMs: number;
  readonly reserveDeadlineMs: number;
  readonly claimDeadlineMs: number;
  readonly drainMsMax: number;
  readonly abandonMsMax: number;
  readonly headersTimeoutMs: number;
  readonly bodyTimeoutMs: number;
}

export interface FrontendPorts {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly logger: Logger;
  readonly metrics: Metrics<FrontendMetricDefinitions>;
  readonly bus: Bus;
  readonly engineClient: EngineClient;
  readonly tokenizer: Tokenizer;
}
