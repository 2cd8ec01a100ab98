import { Client, type Dispatcher, Pool } from "undici";

interface WorkerPoolOptions {
  readonly url: string;
  readonly caPem: string | undefined;
  readonly connectTimeoutMs: number;
  readonly keepAliveIdleMs: number;
}

/** Connections to one worker at one URL, trusting one CA. Throws on what is no HTTP origin. */
export class WorkerPool {
  readonly caPem: string | undefined;
  exchangesInFlight = 0;
  readonly #url: string;
  readonly #clientOptions: Client.Options;
  readonly #pool: Pool;
  /** Clients of one request each, made for retries. */
  readonly #fresh = new Set<Client>();

  constructor(options: WorkerPoolOptions) {
    this.caPem = options.caPem;
    this.#url = options.url;
    this.#clientOptions = {
      allowH2: false,
      keepAliveTimeout: options.keepAliveIdleMs,
      // A server's `Keep-Alive: timeout=` may shorten our limit and never lengthen it.
      keepAliveMaxTimeout: options.keepAliveIdleMs,
      // What a call leaves out must not fall back to undici's 300 s.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: {
        timeout: options.connectTimeoutMs,
        ...(options.caPem === undefined ? {} : { ca: options.caPem }),
      },
    };
    // No `connections` limit: undici would queue behind it, without a cap and out of our sight.
    this.#pool = new Pool(options.url, this.#clientOptions);
  }

  dispatch(request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void {
    this.#pool.dispatch(request, handler);
  }

  /** On a connection that nobody used before and nobody uses after. */
  dispatchFresh(request: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): void {
    if (this.#pool.destroyed) {
      this.dispatch(request, handler);
      return;
    }
    const client = new Client(this.#url, this.#clientOptions);
    this.#fresh.add(client);
    client.dispatch(request, handler);
    void client.close().then(() => this.#fresh.delete(client));
  }

  /** Resolves when the last answer has ended. */
  async close(): Promise<void> {
    await this.#pool.close();
  }

  /** Fails what is in flight. */
  async destroy(): Promise<void> {
    await Promise.all([this.#pool, ...this.#fresh].map((dispatcher) => dispatcher.destroy()));
  }
}
