import { type TierCounts, type TierWeights, tiers } from "@baton/domain";

/** Σ tokens(tier) × weight(tier): what the cached tokens are worth. A score; the count stays a count. */
export function weightedTokens(tokens: TierCounts, weights: TierWeights): number {
  let sum = 0;
  for (const tier of tiers) sum += tokens[tier] * weights[tier];
  return sum;
}
