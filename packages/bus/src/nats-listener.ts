import type { Msg, NatsConnection, Subscription } from "nats";

/** A subscription that can be made again after the server has ended it for lack of permission. */
export class NatsListener {
  readonly subject: string;
  readonly #client: NatsConnection;
  readonly #options: { queue?: string; callback: (error: Error | null, message: Msg) => void };
  #subscription: Subscription;

  constructor(
    client: NatsConnection,
    subject: string,
    queue: string | null,
    receive: (message: Msg) => void,
  ) {
    this.subject = subject;
    this.#client = client;
    // An error here is a refused subscription; the status stream reports it too.
    const callback = (error: Error | null, message: Msg): void => {
      if (error === null) receive(message);
    };
    this.#options = queue === null ? { callback } : { callback, queue };
    this.#subscription = client.subscribe(subject, { ...this.#options });
  }

  reopen(): void {
    if (!this.#subscription.isClosed()) return;
    this.#subscription = this.#client.subscribe(this.subject, { ...this.#options });
  }

  close(): void {
    if (!this.#client.isClosed()) this.#subscription.unsubscribe();
  }

  async drain(isUp: boolean): Promise<void> {
    if (isUp && !this.#client.isClosed() && !this.#subscription.isClosed())
      await this.#subscription.drain();
    else this.close();
  }
}
