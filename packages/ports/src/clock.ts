export interface Clock {
  /** Monotonic milliseconds; only differences mean something. */
  nowMs(): number;
  /** Milliseconds since the epoch, for records that people and other processes read. */
  wallMs(): number;
}

export interface TimerHandle {
  /** After it the callback is not called. Idempotent. */
  cancel(): void;
}

export interface Timers {
  after(delayMs: number, callback: () => void): TimerHandle;
  /** First call after one interval. A slow callback delays the next, they never overlap. */
  every(intervalMs: number, callback: () => void): TimerHandle;
}
