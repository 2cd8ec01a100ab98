import type { BatonError } from "@baton/domain";
import type { Outcome } from "@baton/kit";
import type { Route } from "./http.ts";

export interface TokenizeInput {
  readonly model: string;
  readonly route: Route;
  /** The client's body, whole, UTF-8 JSON; workers parse it themselves where they need to. */
  readonly body: Uint8Array;
}

export interface Tokenized {
  readonly tokenIds: Uint32Array;
  readonly source: "local" | "engine";
}

export interface Tokenizer {
  /**
   * `null`: tokenising is off; the prompt has no known tokens and no overlap knowledge.
   * Errors: BATON_TOKENIZER_FAILED; the caller goes on without overlap knowledge and counts it.
   */
  tokenize(input: TokenizeInput): Promise<Outcome<Tokenized, BatonError> | null>;
  close(): Promise<void>;
}
