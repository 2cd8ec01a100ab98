/**
 * Bounds the bytes that were handed to the client and that the server is not known to have read.
 * NATS has no acknowledgement of publications, so from time to time a ping is sent behind them; its
 * pong covers all before it. Without it a server that stops reading would fill this process.
 */
export class OutboundWindow {
  readonly #bytesMax: number;
  readonly #probeBytes: number;
  readonly #probe: () => Promise<void>;
  #bytes = 0;
  #isProbing = false;
  #generation = 0;

  constructor(options: { readonly bytesMax: number; readonly probe: () => Promise<void> }) {
    this.#bytesMax = options.bytesMax;
    this.#probeBytes = Math.min(1024 * 1024, options.bytesMax / 2);
    this.#probe = options.probe;
  }

  get isFull(): boolean {
    return this.#bytes >= this.#bytesMax;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    if (!this.#isProbing && this.#bytes >= this.#probeBytes) void this.#confirm();
  }

  /** The connection was lost, and with it all that was unconfirmed. */
  reset(): void {
    this.#bytes = 0;
    this.#isProbing = false;
    this.#generation++;
  }

  async #confirm(): Promise<void> {
    const generation = this.#generation;
    while (this.#bytes >= this.#probeBytes) {
      const covered = this.#bytes;
      this.#isProbing = true;
      try {
        await this.#probe();
      } catch {
        // The connection went; `reset` follows or came first.
        return;
      }
      if (generation !== this.#generation) return;
      this.#bytes -= covered;
      this.#isProbing = false;
    }
  }
}
