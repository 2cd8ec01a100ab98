import type {
  BatonError,
  DecisionRecord,
  Tier,
  TierCounts,
  TierWeights,
  WorkerAddress,
} from "@baton/domain";
import type { WorkerConfig } from "@baton/fleet";
import type { Outcome } from "@baton/kit";
import type { PrefillCoefficients } from "@baton/perf-model";
import type { Policy } from "./pick.ts";
import type { AttemptKey, HashSet } from "./request.ts";

export interface PrefillPoolOptions {
  readonly model: string;
  readonly workers: readonly WorkerConfig[];
  readonly policy: Policy;
  readonly coefficients: PrefillCoefficients;
  readonly tierWeights: TierWeights;
  /** Longest predicted wait that is still queued; beyond it requests are turned away. */
  readonly waitMsMax: number;
  readonly tierOf: (medium: string | null) => Tier | "unknown";
}

export interface PlaceRequest extends AttemptKey {
  /** Process life of the frontend that answers for it. */
  readonly owner: string;
  readonly promptTokens: number | null;
  readonly promptBytes: number;
  readonly hashSets: readonly HashSet[];
  /** Absolute. */
  readonly deadlineMs: number;
  readonly excluded: readonly string[];
}

export interface OfferedPrefill {
  readonly worker: WorkerAddress;
  readonly isAggregated: boolean;
  readonly connector: string;
  readonly blockSizeTokens: number | null;
  readonly cachedTokens: TierCounts;
  readonly predictedWaitMs: number;
  readonly predictedPrefillMs: number;
  readonly costMs: number;
}

export interface PlaceResult {
  readonly record: DecisionRecord;
  /** Best first, at most three; the first is charged. */
  readonly offers: Outcome<readonly OfferedPrefill[], BatonError>;
}

export interface PrefillStats {
  readonly leases: number;
  readonly indexBlocks: number;
  readonly predictedAttempts: number;
  readonly workers: readonly {
    readonly workerId: string;
    readonly leases: number;
    readonly waitMs: number;
    readonly rateFactor: number;
  }[];
}
