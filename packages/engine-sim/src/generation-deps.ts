import type { EngineModel } from "@baton/engine-model";
import type { Prng } from "@baton/kit";
import type { EngineClock } from "./engine-clock.ts";
import type { EngineRuntime } from "./engine-runtime.ts";
import type { Faults } from "./faults.ts";
import type { KvPuller } from "./kv-puller.ts";
import type { Ledger } from "./ledger.ts";
import type { RequestMetrics } from "./request-metrics.ts";

/** What generations of one engine share. */
export interface GenerationDeps {
  readonly model: EngineModel;
  readonly runtime: EngineRuntime;
  readonly clock: EngineClock;
  readonly metrics: RequestMetrics;
  readonly ledger: Ledger;
  readonly puller: KvPuller;
  readonly faults: Faults;
  readonly ids: Prng;
  readonly kvBytesPerToken: number;
  /** Where decode engines read from. */
  readonly address: { readonly engineId: string; readonly host: string; readonly port: number };
  /** `usage.prompt_tokens_details` is told. */
  readonly tellsCachedTokens: boolean;
}
