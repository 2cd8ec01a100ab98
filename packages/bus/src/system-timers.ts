import type { TimerHandle, Timers } from "@baton/ports";

// setTimeout turns a longer delay into 1 ms.
const delayMsMax = 2_147_483_647;

/** Node's timers; `after(0)` runs in the next turn of the event loop, not a millisecond later. */
export const systemTimers: Timers = {
  after(delayMs, callback): TimerHandle {
    if (delayMs <= 0) {
      const immediate = setImmediate(callback);
      return { cancel: () => clearImmediate(immediate) };
    }
    const timeout = setTimeout(callback, Math.min(delayMs, delayMsMax));
    return { cancel: () => clearTimeout(timeout) };
  },

  every(intervalMs, callback): TimerHandle {
    const interval = setInterval(callback, intervalMs);
    return { cancel: () => clearInterval(interval) };
  },
};
