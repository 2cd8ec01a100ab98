import type { ServerResponse } from "node:http";

/**
 * Answers that are not over. One is over when its last byte has left, or when its connection is gone:
 * an answer that waits behind another on the same connection is not told of that by node:http.
 */
export class RunningAnswers {
  readonly #listeners = new Map<ServerResponse, (() => void)[]>();
  #idleListener: (() => void) | null = null;

  get size(): number {
    return this.#listeners.size;
  }

  start(response: ServerResponse): void {
    const { socket } = response.req;
    const over = (): void => {
      response.off("close", over);
      socket.off("close", over);
      const listeners = this.#listeners.get(response) ?? [];
      this.#listeners.delete(response);
      for (const listener of listeners) listener();
      if (this.#listeners.size === 0) this.#idleListener?.();
    };
    this.#listeners.set(response, []);
    response.once("close", over);
    socket.once("close", over);
  }

  /** Called once; at once when the answer is over already. */
  onOver(response: ServerResponse, listener: () => void): void {
    const listeners = this.#listeners.get(response);
    if (listeners === undefined) listener();
    else listeners.push(listener);
  }

  /** Resolves when nothing is running, at the latest after `graceMs`. */
  allOver(graceMs: number): Promise<void> {
    if (this.size === 0) return Promise.resolve();
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.#idleListener = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
