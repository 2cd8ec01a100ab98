/** Bounds of one feed. The replay times are those that llm-d's router has used in production. */
export interface KvFeedLimits {
  /** Live messages that wait for a replay; beyond either they are dropped and replayed instead. */
  readonly heldMessagesMax: number;
  readonly heldBytesMax: number;
  /** A replay that sends nothing for so long is given up and asked again. */
  readonly replayIdleMs: number;
  /** All attempts of one recovery together. */
  readonly replayTotalMs: number;
  /** Attempts in a row that bring nothing new before the feed goes on without. */
  readonly replayStallsMax: number;
  /** From there to the next recovery. */
  readonly replayCooldownMs: number;
  /**
   * First check after a recovery: a message sent while the subscription was on its way is in no
   * replay asked before it, and an idle engine never shows the gap.
   */
  readonly probeFirstMs: number;
  /** Silence after which an engine's newest message is compared with ours. */
  readonly probeIdleMs: number;
  /** Live messages still in our socket may arrive for so long after it lost its connection. */
  readonly disconnectGraceMs: number;
}

export const kvFeedLimitsDefault: KvFeedLimits = {
  heldMessagesMax: 10_000,
  heldBytesMax: 64 * 1024 * 1024,
  replayIdleMs: 2_000,
  replayTotalMs: 120_000,
  replayStallsMax: 3,
  replayCooldownMs: 30_000,
  probeFirstMs: 1_000,
  probeIdleMs: 30_000,
  disconnectGraceMs: 1_000,
};
