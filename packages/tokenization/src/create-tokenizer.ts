import type { BatonError } from "@baton/domain";
import { type Outcome, ok } from "@baton/kit";
import type { Logger, Tokenized, TokenizeInput, Tokenizer } from "@baton/ports";
import { EngineTokenizer, type FetchTokenize } from "./engine-tokenizer.ts";
import { WorkerPool } from "./worker-pool.ts";

export interface LocalTokenizerOptions {
  readonly mode: "local";
  /** Holds tokenizer.json, tokenizer_config.json and, where it is a file, chat_template.jinja. */
  readonly folder: string;
  readonly logger: Logger;
  /** Threads, each with the tokenizer in memory (about 230 MB for a vocabulary of 150,000). */
  readonly threads?: number;
  /** Waiting requests, and bytes of their bodies, above which the next is refused. */
  readonly queueRequestsMax?: number;
  readonly queueBytesMax?: number;
  /** Larger bodies are refused: 4 MiB are a million tokens of prose, or an image. */
  readonly bodyBytesMax?: number;
  /** Text that merges badly (one letter a million times over) runs into it. */
  readonly jobTimeoutMs?: number;
  /**
   * JavaScript heap of one thread. The worst 4 MiB found take 2 GB; a limit that one large
   * allocation crosses ends the process and not the thread, so it stays well above that.
   */
  readonly threadHeapMb?: number;
}

export interface EngineTokenizerOptions {
  readonly mode: "engine";
  readonly fetchTokenize: FetchTokenize;
  readonly inFlightMax?: number;
}

export type TokenizerOptions =
  | LocalTokenizerOptions
  | EngineTokenizerOptions
  | { readonly mode: "none" };

export const tokenizerDefaults = {
  threads: 2,
  queueRequestsMax: 256,
  queueBytesMax: 64 * 1024 * 1024,
  bodyBytesMax: 4 * 1024 * 1024,
  jobTimeoutMs: 10_000,
  threadHeapMb: 4_096,
  inFlightMax: 64,
} as const;

/**
 * A tokenizer of one of three kinds: `local` (threads of this process, one model), `engine` (asks a
 * worker's /tokenize) or `none` (knows no tokens). Resolves when it can be used; the error
 * BATON_TOKENIZER_FAILED names the file that is missing or wrong.
 */
export async function createTokenizer(
  options: TokenizerOptions,
): Promise<Outcome<Tokenizer, BatonError>> {
  switch (options.mode) {
    case "none":
      return ok({ tokenize: async () => null, close: async () => {} });
    case "engine": {
      const { fetchTokenize, inFlightMax = tokenizerDefaults.inFlightMax } = options;
      return ok(new EngineTokenizer(fetchTokenize, inFlightMax));
    }
    case "local": {
      const pool = new WorkerPool({ ...tokenizerDefaults, ...options });
      const started = await pool.start();
      return started.ok ? ok(localTokenizer(pool)) : started;
    }
  }
}

function localTokenizer(pool: WorkerPool): Tokenizer {
  return {
    async tokenize(input: TokenizeInput): Promise<Outcome<Tokenized, BatonError>> {
      const tokenIds = await pool.run(input.route, input.body);
      return tokenIds.ok ? ok({ tokenIds: tokenIds.value, source: "local" }) : tokenIds;
    },
    close: () => pool.close(),
  };
}
