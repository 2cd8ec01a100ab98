import { setImmediate } from "node:timers/promises";

const messagesPerTurnMax = 256;
const turnMsMax = 8;

/**
 * Breaks up a loop over a socket that always has more: zeromq resolves at once while it has
 * messages, and promise jobs alone never let the event loop go on.
 */
export class Turns {
  #messages = 0;
  #startMs = performance.now();

  /** Await after each message. */
  async next(): Promise<void> {
    this.#messages += 1;
    const isOver =
      this.#messages >= messagesPerTurnMax || performance.now() - this.#startMs >= turnMsMax;
    if (!isOver) return;
    await setImmediate();
    this.#messages = 0;
    this.#startMs = performance.now();
  }
}
