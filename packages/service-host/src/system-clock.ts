import type { Clock } from "@baton/ports";

/** The clocks of this machine: `nowMs` counts from the start of the process. */
export const systemClock: Clock = {
  nowMs: () => performance.now(),
  wallMs: () => Date.now(),
};
