import type { EngineProfile } from "./profiles.ts";

export interface EngineModelConfig {
  readonly profile: EngineProfile;
  /** Usable KV capacity; whole blocks of it are used. */
  readonly cacheTokens: number;
  readonly blockSizeTokens: number;
  readonly linkBytesPerSecond: number;
  readonly transferSetupMs: number;
  readonly leaseMs: number;
  readonly tokensPerStepMax: number;
  readonly requestsRunningMax: number;
  /** Two engines with different seeds share no block hash. */
  readonly hashSeed: string;
}

/** What vLLM and NIXL do when nothing is configured. */
export const engineModelDefaults = {
  blockSizeTokens: 16,
  linkBytesPerSecond: 25e9,
  transferSetupMs: 2,
  leaseMs: 30_000,
  tokensPerStepMax: 8192,
  requestsRunningMax: 256,
} as const;
