import type { HashList } from "@baton/kit";

/**
 * One change of an engine's KV cache, free of wire forms. Hashes are the ENGINE's, opaque, and
 * comparable only within one (worker incarnation, rank, group).
 */
export type KvEvent =
  | {
      readonly kind: "stored";
      /** n hashes, chained, in prefix order. */
      readonly engineHashes: HashList;
      /** One hash, or null when the first block starts at token 0. */
      readonly parentEngineHash: HashList | null;
      /** n * blockSizeTokens token ids; empty in hash-only placeholders of outer tiers. */
      readonly tokenIds: Uint32Array;
      /** 0 in placeholders. */
      readonly blockSizeTokens: number;
      /** As sent; null when absent. `tierOfMedium` of kv-events maps it. */
      readonly medium: string | null;
      readonly loraName: string | null;
      /** Salt of block 0; null when the request had none. */
      readonly cacheSalt: string | null;
      /**
       * Canonical text of other extra keys (multimodal ids with offsets, prompt-embedding digests),
       * one per block, null where a block has none; null when no block has any.
       */
      readonly extraKeys: readonly (string | null)[] | null;
      readonly groupIndex: number | null;
      /** As sent, e.g. `full_attention`; null when absent. */
      readonly specKind: string | null;
    }
  | {
      readonly kind: "removed";
      readonly engineHashes: HashList;
      readonly medium: string | null;
      readonly groupIndex: number | null;
    }
  | { readonly kind: "cleared" };

/** One message of an engine's event stream. */
export interface KvBatch {
  /** Engine's wall clock, seconds. */
  readonly engineTimeS: number;
  /** Null when the engine did not say. */
  readonly dpRank: number | null;
  readonly events: readonly KvEvent[];
  /** Events that could not be read, by reason; the good ones around them are in `events`. */
  readonly skipped: Readonly<Record<string, number>>;
}

/**
 * What is known of one (worker, rank) event stream. `lossy`: events were missed and cannot be
 * replayed, so removals may be missing.
 */
export type KvFeedState = "init" | "subscribed" | "replay" | "live" | "lossy" | "reset";
