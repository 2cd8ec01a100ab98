/** Where a KV block lies, best first. */
export type Tier = "gpu" | "host" | "disk";

export const tiers: readonly Tier[] = ["gpu", "host", "disk"];

/** What a cached token of a tier is worth against a token on the GPU, 0..1. */
export type TierWeights = Readonly<Record<Tier, number>>;

/** Blocks or tokens per tier; each counted once, at its best tier. A count, never a weight. */
export type TierCounts = Readonly<Record<Tier, number>>;

/** The default `tierWeights: fixed`; docs/adr/0005-tier-weights.md. */
export const tierWeightsFixed: TierWeights = { gpu: 1.0, host: 0.75, disk: 0.25 };
