import { invariant } from "@baton/kit";

/** Engines with tiny blocks (SGLang's page 1) are indexed in groups, so that plans stay small. */
export const indexBlockTokensMin = 16;

/** Smallest multiple of the engine's block that is at least 16 tokens. */
export function indexBlockSizeTokens(engineBlockSizeTokens: number): number {
  invariant(
    Number.isInteger(engineBlockSizeTokens) && engineBlockSizeTokens > 0,
    `block size is a positive integer, got ${engineBlockSizeTokens}`,
  );
  return Math.ceil(indexBlockTokensMin / engineBlockSizeTokens) * engineBlockSizeTokens;
}
