export interface HeldMessage {
  readonly sequence: bigint;
  readonly payload: Uint8Array;
  readonly mark: number;
}

/**
 * Live messages that wait for what is before them, oldest first. When one more would pass a bound,
 * all are dropped: they are in the engine's ring, so a replay brings them again.
 */
export class HeldMessages {
  readonly #messagesMax: number;
  readonly #bytesMax: number;
  #messages: HeldMessage[] = [];
  #start = 0;
  #bytes = 0;

  constructor(messagesMax: number, bytesMax: number) {
    this.#messagesMax = messagesMax;
    this.#bytesMax = bytesMax;
  }

  get size(): number {
    return this.#messages.length - this.#start;
  }

  first(): HeldMessage | undefined {
    return this.#messages[this.#start];
  }

  push(message: HeldMessage): void {
    const bytes = this.#bytes + message.payload.length;
    if (this.size >= this.#messagesMax || bytes > this.#bytesMax) {
      this.clear();
      return;
    }
    this.#messages.push(message);
    this.#bytes = bytes;
  }

  shift(): HeldMessage | undefined {
    const message = this.first();
    if (message === undefined) return undefined;
    this.#start += 1;
    this.#bytes -= message.payload.length;
    if (this.#start === this.#messages.length) this.clear();
    return message;
  }

  clear(): void {
    this.#messages = [];
    this.#start = 0;
    this.#bytes = 0;
  }
}
