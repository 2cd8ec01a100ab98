/** Totals since the engine started, in tokens, bytes and requests as named. */
export interface EngineCounters {
  /** Prompt tokens looked up in the own cache, and found there. */
  queriedTokens: number;
  hitTokens: number;
  /** Prompt tokens computed, again after a preemption included. */
  computedTokens: number;
  /** Prompt tokens and bytes that came from another engine; bytes in whole blocks. */
  transferredTokens: number;
  transferredBytes: number;
  generatedTokens: number;
  steps: number;
  finished: number;
  aborted: number;
  preemptions: number;
  exportsExpired: number;
  /** Completion notices for exports that were gone. */
  lateNotices: number;
}

export function newCounters(): EngineCounters {
  return {
    queriedTokens: 0,
    hitTokens: 0,
    computedTokens: 0,
    transferredTokens: 0,
    transferredBytes: 0,
    generatedTokens: 0,
    steps: 0,
    finished: 0,
    aborted: 0,
    preemptions: 0,
    exportsExpired: 0,
    lateNotices: 0,
  };
}
