import { Prng } from "@baton/kit";
import { type TraceRow, traceBlockTokens } from "./trace-row.ts";

export interface SynthesisOptions {
  readonly seed: number;
  readonly vocabulary: TokenRange;
}

/** Token ids in [first, end). */
export interface TokenRange {
  readonly first: number;
  readonly end: number;
}

/** Plain text pieces in the vocabularies of Qwen and Llama 3: no special tokens, none missing. */
export const vocabularyDefault: TokenRange = { first: 1_000, end: 149_000 };

const seedMax = 2 ** 21;

/**
 * A prompt of `row.inputTokens` token ids. A block's tokens follow from its id and the seed alone,
 * so rows that share their first k ids share their first 512 k tokens (as far as both reach), and
 * differ right after. About 5 ns a token.
 */
export function synthesizeTokens(row: TraceRow, options: SynthesisOptions): Uint32Array {
  const { first, end } = options.vocabulary;
  const tokenIds = new Uint32Array(row.inputTokens);
  for (const [block, id] of row.hashIds.entries()) {
    // Distinct pairs are distinct states of the generator: it takes 32 and 21 bits of the sum.
    const random = new Prng((options.seed % seedMax) * 2 ** 32 + id);
    const blockEnd = Math.min((block + 1) * traceBlockTokens, row.inputTokens);
    for (let at = block * traceBlockTokens; at < blockEnd; at++) {
      tokenIds[at] = first + random.below(end - first);
    }
  }
  return tokenIds;
}
