import type { KvFeedLimits } from "./feed-limits.ts";

/** One request for a replay, from asking to its end. */
export interface Replay {
  readonly attempt: number;
  readonly from: bigint;
  /** Of the message `from`, which we have; null when asked from the start. */
  readonly knownMark: number | null;
  /** Newest live message heard when asked; the replay has it, if it is of this engine life. */
  readonly liveNewest: bigint | null;
  /** The feed goes on as it was until an answer says otherwise. */
  isQuiet: boolean;
  isAnswered: boolean;
  hasProgressed: boolean;
  /** When it was last heard of; null while the request waits for its turn. */
  heardMs: number | null;
}

/**
 * Pace of replays: at most one at a time, how often to repeat, when to leave off and when to look
 * again. It knows nothing of the stream.
 */
export class Recovery {
  readonly #limits: KvFeedLimits;
  replay: Replay | null = null;
  #attempt = 0;
  #stalls = 0;
  #sinceMs: number | null = null;
  #cooldownUntilMs: number | null = null;
  #probeAtMs: number | null = null;
  #hasProbed = false;

  constructor(limits: KvFeedLimits) {
    this.#limits = limits;
  }

  /** What `tick` waits for; null while a request waits for its turn, or nothing is awaited. */
  get deadlineMs(): number | null {
    if (this.replay === null) return this.#cooldownUntilMs ?? this.#probeAtMs;
    if (this.replay.heardMs === null) return null;
    const totalMs = (this.#sinceMs ?? this.replay.heardMs) + this.#limits.replayTotalMs;
    return Math.min(this.replay.heardMs + this.#limits.replayIdleMs, totalMs);
  }

  get isCoolingDown(): boolean {
    return this.#cooldownUntilMs !== null;
  }

  /** The last attempt brought nothing. */
  get hasStalled(): boolean {
    return this.#stalls > 0;
  }

  begin(request: Pick<Replay, "from" | "knownMark" | "liveNewest" | "isQuiet">): Replay {
    this.#attempt += 1;
    this.#cooldownUntilMs = null;
    this.#probeAtMs = null;
    const fresh = { isAnswered: false, hasProgressed: false, heardMs: null };
    this.replay = { attempt: this.#attempt, ...request, ...fresh };
    return this.replay;
  }

  started(nowMs: number): void {
    if (this.replay !== null) this.replay.heardMs = nowMs;
    this.#sinceMs ??= nowMs;
  }

  /** The current attempt brought all it will; says whether another one is worth it. */
  shouldRepeat(replay: Replay, nowMs: number): boolean {
    this.#stalls = replay.hasProgressed ? 0 : this.#stalls + 1;
    const tookMs = nowMs - (this.#sinceMs ?? nowMs);
    return this.#stalls < this.#limits.replayStallsMax && tookMs < this.#limits.replayTotalMs;
  }

  /** Nothing is asked any more; the next recovery counts from zero. */
  end(): void {
    this.replay = null;
    this.#stalls = 0;
    this.#sinceMs = null;
    this.#cooldownUntilMs = null;
    this.#probeAtMs = null;
  }

  coolDown(nowMs: number): void {
    this.end();
    this.#cooldownUntilMs = nowMs + this.#limits.replayCooldownMs;
  }

  /** All is well: look again soon after a new connection, later only when the stream is silent. */
  watch(nowMs: number): void {
    this.end();
    const { probeFirstMs, probeIdleMs } = this.#limits;
    this.#probeAtMs = nowMs + (this.#hasProbed ? probeIdleMs : probeFirstMs);
  }

  /** Whether the due probe is needed; if not it is put off. */
  mustProbe(nowMs: number, liveAtMs: number): boolean {
    const silentUntilMs = liveAtMs + this.#limits.probeIdleMs;
    if (!this.#hasProbed || nowMs >= silentUntilMs) {
      this.#hasProbed = true;
      return true;
    }
    this.#probeAtMs = silentUntilMs;
    return false;
  }

  reconnected(): void {
    this.end();
    this.#hasProbed = false;
  }
}
