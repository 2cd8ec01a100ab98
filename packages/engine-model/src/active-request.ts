import type { CacheSequence } from "./cache-sequence.ts";
import type { EngineRequest } from "./engine-request.ts";

/** A request inside the engine. EngineModel's own; never leaves it. */
export interface ActiveRequest {
  readonly request: EngineRequest;
  readonly sequence: CacheSequence;
  /** Still needs blocks of another engine. */
  isRemote: boolean;
  /** Contents that came in and are not yet in the cache. */
  contents: Uint32Array | null;
  /** All tokens but the sampled one have their KV: each step gives a token. */
  isDecoding: boolean;
  wasAdmitted: boolean;
  isGone: boolean;
  /** Of the whole prompt, once its KV is there. */
  digest: Uint32Array | null;
  generated: number;
  preemptions: number;
}

export function activeRequest(request: EngineRequest, sequence: CacheSequence): ActiveRequest {
  return {
    request,
    sequence,
    isRemote: request.kind === "decode-with-remote-kv",
    contents: null,
    isDecoding: false,
    wasAdmitted: false,
    isGone: false,
    digest: null,
    generated: 0,
    preemptions: 0,
  };
}

/** One request's share of a step. `fromToken` null: a decode row. */
export interface StepRow {
  readonly active: ActiveRequest;
  readonly fromToken: number | null;
  readonly toToken: number;
}
