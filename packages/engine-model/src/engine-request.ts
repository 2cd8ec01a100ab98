import type { KvEvent } from "@baton/domain";

export interface EngineRequest {
  /** Unique in the engine; also the name of the export lease. */
  readonly id: string;
  /** At least one token. Not copied, not changed. */
  readonly promptIds: Uint32Array;
  /** Tokens to generate, at least 1; the engine never stops earlier. */
  readonly tokensMax: number;
  readonly cacheSalt: string | null;
  /**
   * `prefill-for-remote`: at the end its blocks stay, under a lease, for another engine to read.
   * `decode-with-remote-kv`: what the cache does not hold comes from another engine.
   */
  readonly kind: "normal" | "prefill-for-remote" | "decode-with-remote-kv";
}

/** What the model reports, in order. `atMs` is model time and may lie before the call that found it. */
export type Happening =
  /** The first time a request gets blocks. */
  | {
      readonly kind: "admitted";
      readonly atMs: number;
      readonly requestId: string;
      readonly hitTokens: number;
    }
  /** The request waits for its last `blocks` blocks: answer with `beginTransfer`, or `abort`. */
  | {
      readonly kind: "pull";
      readonly atMs: number;
      readonly requestId: string;
      readonly blocks: number;
    }
  /** The bytes have arrived: answer with `deliver`, or `abort`. */
  | { readonly kind: "transferred"; readonly atMs: number; readonly requestId: string }
  /** Prompt tokens [fromToken, toToken) were computed here. */
  | {
      readonly kind: "prefilled";
      readonly atMs: number;
      readonly requestId: string;
      readonly fromToken: number;
      readonly toToken: number;
    }
  | {
      readonly kind: "token";
      readonly atMs: number;
      readonly requestId: string;
      readonly index: number;
      readonly tokenId: number;
      readonly text: string;
    }
  /** `exportedBlocks`: ids under lease, in prompt order; null when nothing is exported. */
  | {
      readonly kind: "finished";
      readonly atMs: number;
      readonly requestId: string;
      readonly exportedBlocks: readonly number[] | null;
      /** How often it lost its blocks and began again. */
      readonly preemptions: number;
    }
  /** A step ended; `tokens` prompt and output tokens went through it. */
  | { readonly kind: "step"; readonly atMs: number; readonly tokens: number }
  | { readonly kind: "expired"; readonly atMs: number; readonly requestId: string }
  /** Cache events of one step, as one batch. */
  | { readonly kind: "events"; readonly atMs: number; readonly events: readonly KvEvent[] };
