import { hashBlocks, namespaceRoot } from "@baton/kv-blocks";
import { BlockCounter } from "./block-counter.ts";
import { type SynthesisOptions, synthesizeTokens } from "./synthesize-tokens.ts";
import type { TraceRow } from "./trace-row.ts";

interface BlockUsageOptions extends SynthesisOptions {
  readonly model: string;
  readonly engineBlockTokens: number;
}

export interface BlockUsage {
  /**
   * Tokens that one endless cache would reuse over all rows in order, by all prompt tokens. A
   * prompt's last block is never reused whole, since an engine computes at least one token:
   * Σ min(known blocks, floor((n - 1) / block)) · block ÷ Σ n.
   */
  readonly idealHitRatio: number;
  readonly counter: BlockCounter;
}

/** Which engine blocks the rows hold. Hashes every prompt: about 10 ns a token. */
export function blockUsage(rows: readonly TraceRow[], options: BlockUsageOptions): BlockUsage {
  const { engineBlockTokens, model } = options;
  const root = namespaceRoot({ model, loraName: null, cacheSalt: null });
  const counter = new BlockCounter();
  let reused = 0;
  let total = 0;
  for (const row of rows) {
    const tokenIds = synthesizeTokens(row, options);
    const known = counter.addPrompt(hashBlocks(tokenIds, engineBlockTokens, root));
    const reusable = Math.floor((tokenIds.length - 1) / engineBlockTokens);
    reused += Math.min(known, reusable) * engineBlockTokens;
    total += tokenIds.length;
  }
  return { idealHitRatio: total === 0 ? 0 : reused / total, counter };
}
