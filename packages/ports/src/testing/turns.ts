import type { TimerHandle, Timers } from "../clock.ts";

/**
 * Manual time for the in-memory bus: what is due at once runs in the next turn of the event loop, as
 * the bus needs it between batches; deadlines wait for `advance`.
 */
export function turnTimers(manual: Timers): Timers {
  return {
    after(delayMs, callback): TimerHandle {
      if (delayMs > 0) return manual.after(delayMs, callback);
      const immediate = setImmediate(callback);
      return { cancel: () => clearImmediate(immediate) };
    },
    every: (intervalMs, callback) => manual.every(intervalMs, callback),
  };
}

/** Turns of the event loop, enough for what is under way inside one process to come to rest. */
export async function settle(turns = 8): Promise<void> {
  for (let turn = 0; turn < turns; turn++) await new Promise((resolve) => setImmediate(resolve));
}
