import type { BatonError, WorkerAddress, WorkerIdentity } from "@baton/domain";

/** A prefill worker offered by the prefill-scheduler. */
export interface Offer {
  readonly worker: WorkerAddress;
  readonly isAggregated: boolean;
  readonly connector: string;
  /** Null when not known. */
  readonly blockSizeTokens: number | null;
  readonly predictedWaitMs: number;
  readonly predictedPrefillMs: number;
}

/** What the decode-scheduler granted. `prefill` null: the whole request runs on `decode`. */
export interface Plan {
  readonly prefill: WorkerAddress | null;
  readonly decode: WorkerAddress;
  readonly connector: string;
  /** Engine block of `prefill`; null when not known, or when there is none. */
  readonly blockSizeTokens: number | null;
}

/** What has happened. Events of an earlier attempt are ignored. */
export type FlowEvent =
  | { readonly kind: "start" }
  | { readonly kind: "placed"; readonly attempt: number; readonly offers: readonly Offer[] }
  | { readonly kind: "place-failed"; readonly attempt: number; readonly error: BatonError }
  | {
      readonly kind: "reserved";
      readonly attempt: number;
      readonly prefill: WorkerIdentity | null;
      readonly decode: WorkerAddress;
      readonly connector: string;
    }
  | { readonly kind: "reserve-failed"; readonly attempt: number; readonly error: BatonError }
  /** The answer passed the connector's checks. */
  | {
      readonly kind: "prefill-answered";
      readonly attempt: number;
      readonly legMs: number;
      readonly cachedTokens: number | null;
      readonly promptTokens: number | null;
    }
  /** 4xx: the client's fault, to be passed on. */
  | { readonly kind: "prefill-rejected"; readonly attempt: number }
  | {
      readonly kind: "prefill-failed";
      readonly attempt: number;
      readonly error: BatonError;
      readonly isWorkerFault: boolean;
    }
  | { readonly kind: "claimed"; readonly attempt: number }
  | { readonly kind: "claim-refused"; readonly attempt: number; readonly reason: string }
  /** Success status and first byte of the answer. */
  | { readonly kind: "decode-started"; readonly attempt: number; readonly legMs: number }
  | { readonly kind: "decode-rejected"; readonly attempt: number }
  | {
      readonly kind: "decode-failed";
      readonly attempt: number;
      readonly error: BatonError;
      readonly isWorkerFault: boolean;
    }
  | {
      readonly kind: "decode-ended";
      readonly attempt: number;
      readonly outputTokens: number | null;
    }
  | { readonly kind: "client-closed" }
  | { readonly kind: "deadline" }
  /** The timer of `wait` ran out. */
  | { readonly kind: "waited" };

/** What the schedulers are told of an attempt; becomes an `outcome` message. */
export type StageReport =
  | { readonly kind: "moved"; readonly prefill: WorkerIdentity }
  | { readonly kind: "returned"; readonly reason: string }
  | {
      readonly kind: "prefilled";
      readonly legMs: number;
      readonly cachedTokens: number | null;
      readonly promptTokens: number | null;
    }
  | { readonly kind: "prefill-failed"; readonly workerFault: boolean; readonly reason: string }
  | { readonly kind: "first-byte"; readonly legMs: number }
  | {
      readonly kind: "ended";
      readonly end: "done" | "client-closed" | "failed" | "retried";
      readonly workerFault: boolean;
      readonly outputTokens: number | null;
      readonly reason: string;
    };

/** What to do, in this order. */
export type FlowEffect =
  | { readonly kind: "place"; readonly attempt: number; readonly excluded: readonly string[] }
  | {
      readonly kind: "reserve";
      readonly attempt: number;
      readonly offers: readonly Offer[];
      readonly excluded: readonly string[];
    }
  | { readonly kind: "send-prefill"; readonly attempt: number; readonly plan: Plan }
  | { readonly kind: "abort-prefill"; readonly attempt: number }
  | { readonly kind: "claim"; readonly attempt: number; readonly plan: Plan }
  | { readonly kind: "send-decode"; readonly attempt: number; readonly plan: Plan }
  /** A decode leg of one token whose output nobody reads, so that the prefill engine frees its blocks. */
  | { readonly kind: "send-abandon"; readonly attempt: number; readonly plan: Plan }
  | { readonly kind: "abort-decode"; readonly attempt: number }
  /** Pass the decode answer on to the client from its first byte. */
  | { readonly kind: "relay"; readonly attempt: number }
  /** Pass the engine's refusal on to the client. */
  | { readonly kind: "pass-refusal"; readonly attempt: number }
  | { readonly kind: "respond"; readonly error: BatonError }
  /** The answer has begun and cannot be finished: say so in the stream and close. */
  | { readonly kind: "break"; readonly error: BatonError }
  | { readonly kind: "report"; readonly attempt: number; readonly stage: StageReport }
  /** Call `waited` after this long; a later `wait` replaces it. */
  | { readonly kind: "wait"; readonly ms: number }
  /** Exactly once, last. */
  | {
      readonly kind: "over";
      readonly end: "done" | "client-closed" | "failed";
      readonly code: string | null;
    };
