import type { BatonError } from "@baton/domain";
import type { Outcome } from "@baton/kit";

export type BusState = "connected" | "reconnecting" | "draining" | "closed";

export interface BusMessage {
  readonly subject: string;
  readonly payload: Uint8Array;
}

/**
 * Answers a request. May answer later: the promise is the reply. A throw or a rejection reaches
 * the requester as BATON_BUS_HANDLER_FAILED and is logged here; it does not stop the subscription.
 */
export type BusHandler = (message: BusMessage) => Uint8Array | Promise<Uint8Array>;

export interface BusSubscription {
  /** Stops at once. Idempotent. */
  close(): void;
}

/**
 * Request/reply and publish/subscribe between Baton's services. Subjects are NATS subjects
 * (tokens joined by dots; `*` one token and `>` the rest in subscriptions).
 * One contract test suite holds for every implementation.
 */
export interface Bus {
  readonly maxPayloadBytes: number;
  state(): BusState;
  onState(listener: (state: BusState) => void): BusSubscription;

  /**
   * Errors: BATON_BUS_NO_RESPONDER at once, BATON_BUS_DEADLINE, BATON_BUS_PAYLOAD_TOO_LARGE before
   * anything is sent, BATON_BUS_HANDLER_FAILED, BATON_BUS_CLOSED (also at once while reconnecting,
   * and for requests in flight when the connection goes), BATON_BUS_FORBIDDEN, BATON_SATURATED.
   */
  request(
    subject: string,
    payload: Uint8Array,
    options: { readonly deadlineMs: number },
  ): Promise<Outcome<Uint8Array, BatonError>>;

  /** Sent once at most, in order per publisher. Errors as above, at once. */
  publish(subject: string, payload: Uint8Array): Outcome<void, BatonError>;

  /** Publications only. With a `queue`, one member of the group gets each message. */
  subscribe(
    subject: string,
    options: { readonly queue?: string },
    listener: (message: BusMessage) => void,
  ): BusSubscription;

  /** Requests only; several servers of one `queue` share them. */
  serve(subject: string, options: { readonly queue: string }, handler: BusHandler): BusSubscription;

  /** Resolves when all that this process published before is at the server, and its subscriptions are in force. */
  flush(): Promise<void>;

  /** Takes no new requests, lets handlers in flight answer, then closes. Idempotent. */
  drain(): Promise<void>;
}
