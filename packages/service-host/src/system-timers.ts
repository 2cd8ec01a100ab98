import { invariant } from "@baton/kit";
import type { TimerHandle, Timers } from "@baton/ports";

/** setTimeout takes a 32-bit delay and fires at once on a longer one. */
const delayMsMax = 2_147_483_647;

/**
 * Real timers. They keep the process alive until they are cancelled. What a callback throws is an
 * uncaught exception, so that the crash handler sees it.
 */
export const systemTimers: Timers = {
  after(delayMs, callback) {
    return arm(performance.now() + checked(delayMs, 0), () => callback());
  },

  /**
   * Calls fall on whole intervals since the start. After a blocked loop there is one late call, not
   * one for each that was missed, and the beat goes on as before.
   */
  every(intervalMs, callback) {
    const startMs = performance.now();
    const period = checked(intervalMs, 1);
    let isLive = true;
    let handle: TimerHandle;
    const next = (afterMs: number): void => {
      const beats = Math.floor((afterMs - startMs) / period) + 1;
      handle = arm(startMs + beats * period, (dueMs) => {
        try {
          callback();
        } finally {
          if (isLive) next(Math.max(dueMs, performance.now()));
        }
      });
    };
    next(startMs);
    return {
      cancel() {
        isLive = false;
        handle.cancel();
      },
    };
  },
};

/**
 * Never early: setTimeout counts from when the loop last turned, so after a long callback it would
 * be. The rest is then waited for.
 */
function arm(dueMs: number, callback: (dueMs: number) => void): TimerHandle {
  let timer = setTimeout(check, delayLeft(dueMs));
  function check(): void {
    if (performance.now() >= dueMs) callback(dueMs);
    else timer = setTimeout(check, delayLeft(dueMs));
  }
  return { cancel: () => clearTimeout(timer) };
}

function delayLeft(dueMs: number): number {
  return Math.min(delayMsMax, Math.max(0, Math.ceil(dueMs - performance.now())));
}

function checked(delayMs: number, leastMs: number): number {
  invariant(!Number.isNaN(delayMs), "a timer needs a delay");
  return Math.max(leastMs, delayMs);
}
