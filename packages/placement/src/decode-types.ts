import type { BatonError, DecisionRecord, WorkerAddress, WorkerIdentity } from "@baton/domain";
import type { WorkerConfig } from "@baton/fleet";
import type { Outcome } from "@baton/kit";
import type { EngineProfile } from "@baton/perf-model";
import type { Policy } from "./pick.ts";
import type { AttemptKey } from "./request.ts";

export interface DecodePoolOptions {
  readonly model: string;
  readonly workers: readonly WorkerConfig[];
  readonly policy: Policy;
  readonly profile: EngineProfile;
  readonly linkBytesPerSecond: number;
  /** Outputs expected of a request that names no limit, and the most that is held for one. */
  readonly outputTokensDefault: number;
}

export interface PrefillOffer {
  readonly worker: WorkerIdentity;
  readonly isAggregated: boolean;
  readonly connector: string;
}

export interface ReserveRequest extends AttemptKey {
  readonly owner: string;
  readonly promptTokens: number | null;
  readonly promptBytes: number;
  readonly maxOutputTokens: number | null;
  /** Absolute. */
  readonly deadlineMs: number;
  /** Best first; empty when the whole request is to run on a decode worker. */
  readonly offers: readonly PrefillOffer[];
  readonly excluded: readonly string[];
}

export type Reservation =
  | {
      readonly kind: "remote";
      readonly prefill: WorkerIdentity;
      readonly decode: WorkerAddress;
      readonly connector: string;
    }
  | { readonly kind: "local"; readonly decode: WorkerAddress };

export interface ReserveResult {
  readonly record: DecisionRecord;
  readonly reservation: Outcome<Reservation, BatonError>;
}

export interface DecodeStats {
  readonly leases: number;
  readonly transfers: number;
  readonly openHandles: number;
  readonly workers: readonly {
    readonly workerId: string;
    readonly leases: number;
    readonly kvTokens: number;
    readonly ingressBytes: number;
  }[];
}
