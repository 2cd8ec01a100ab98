import type { KvBatch, KvFeedState } from "@baton/domain";
import type { KvPayloadFault } from "@baton/kv-events";

/** What happens to a feed. `attempt` is the number that the `ask` had. */
export type FeedEvent =
  | { readonly kind: "connected" }
  | { readonly kind: "disconnected" }
  | {
      readonly kind: "live";
      readonly sequence: bigint;
      readonly payload: Uint8Array;
      readonly epoch: string | null;
    }
  /** The request was sent; it may have waited for its turn before. */
  | { readonly kind: "replay-started"; readonly attempt: number }
  | {
      readonly kind: "replay-batch";
      readonly attempt: number;
      readonly sequence: bigint;
      readonly payload: Uint8Array;
    }
  | { readonly kind: "replay-end"; readonly attempt: number }
  /** `deadlineMs` has come, or not: an early tick does nothing. */
  | { readonly kind: "tick" };

/** What the feed wants done, in this order. */
export type FeedEffect =
  | { readonly kind: "batch"; readonly batch: KvBatch; readonly sequence: bigint }
  | { readonly kind: "reset"; readonly reason: string }
  | { readonly kind: "state"; readonly state: KvFeedState; readonly reason: string }
  /** Ask for all batches from `from` on, on a socket of its own. */
  | { readonly kind: "ask"; readonly attempt: number; readonly from: bigint }
  /** Nothing more is wanted of this attempt. */
  | { readonly kind: "stop"; readonly attempt: number }
  | { readonly kind: "undecodable"; readonly sequence: bigint; readonly fault: KvPayloadFault };
