import type { EngineProfile } from "./profiles.ts";

/** A piece of one prompt that one step computes. */
export interface PrefillChunk {
  readonly newTokens: number;
  /** Tokens of the same request that already have their KV. */
  readonly pastTokens: number;
}

export interface StepLoad {
  readonly chunks: readonly PrefillChunk[];
  readonly decodeRows: number;
  /** Context of all decode rows together. */
  readonly decodeKvTokens: number;
}

/** One prompt (piece) alone: a + b·n + c·(n·past + n²/2). */
export function prefillMs(profile: EngineProfile, chunk: PrefillChunk): number {
  return profile.prefill.aMs + chunkMs(profile, chunk);
}

/**
 * Duration of one engine step. Decode only: a + b·rows + c·kvTokens of the decode fit. With prefill
 * chunks: the fixed prefill cost once, each chunk's b and c terms, and of the decode rows only the
 * KV read (their matrix work rides along with the chunk's). 0 for an empty step.
 */
export function stepMs(profile: EngineProfile, load: StepLoad): number {
  const { aMs, bMs, cMs } = profile.decode;
  const kvReadMs = cMs * load.decodeKvTokens;
  if (load.chunks.length === 0) {
    return load.decodeRows === 0 ? 0 : aMs + bMs * load.decodeRows + kvReadMs;
  }
  let totalMs = profile.prefill.aMs + kvReadMs;
  for (const chunk of load.chunks) totalMs += chunkMs(profile, chunk);
  return totalMs;
}

function chunkMs(profile: EngineProfile, { newTokens, pastTokens }: PrefillChunk): number {
  const { bMs, cMs } = profile.prefill;
  return bMs * newTokens + cMs * newTokens * (pastTokens + newTokens / 2);
}
