import type { BatonError, ErrorCode } from "@baton/domain";

/** A wire keeps the two apart: only requests carry an address for the answer. */
export type ListenKind = "publications" | "requests";

/** Why a server does not answer a request with a payload. */
export interface Refusal {
  readonly code: "BATON_BUS_HANDLER_FAILED" | "BATON_SATURATED";
  /** One line for a person. */
  readonly message: string;
}

/** Where the answer to one request goes. Whoever holds it calls one of the two, once. */
export interface WireReply {
  answer(payload: Uint8Array): void;
  refuse(refusal: Refusal): void;
}

/** Takes one message; the payload is the receiver's own copy. `reply` is null for a publication. */
export type WireReceiver = (subject: string, payload: Uint8Array, reply: WireReply | null) => void;

export interface ListenSpec {
  readonly kind: ListenKind;
  readonly subject: string;
  readonly queue: string | null;
}

export interface WireListener {
  /** Stops at once. Idempotent. */
  close(): void;
  /** Stops, and resolves when no message that was on its way can arrive any more. */
  drain(): Promise<void>;
}

/**
 * What differs between the in-memory bus and NATS; `BusConnection` holds all the rest, so that
 * bounds, deadlines, order, drain and errors are one piece of code.
 * Payloads are copied during the call: the caller may use its bytes again afterwards.
 */
export interface Wire {
  isUp(): boolean;
  maxPayloadBytes(): number;
  /** A reason not to send on `subject` now (forbidden, or the server takes no bytes), or null. */
  blocked(subject: string): BatonError | null;
  /** False: not sent, the connection has just gone. */
  publish(subject: string, payload: Uint8Array): boolean;
  /** The answer comes as `onReply` or `onRefusal` with `token`. False as for `publish`. */
  request(subject: string, token: number, payload: Uint8Array): boolean;
  listen(spec: ListenSpec, receive: WireReceiver): WireListener;
  /** True once the peer has all that was sent before; false when the connection is or gets lost. */
  flush(): Promise<boolean>;
  close(): Promise<void>;
}

export interface WireEvents {
  onConnected(): void;
  onDisconnected(): void;
  onClosed(): void;
  onReply(token: number, payload: Uint8Array): void;
  /** `detail` null: the code says it all. */
  onRefusal(token: number, code: ErrorCode, detail: string | null): void;
  /** Requests in flight on `subject` cannot be answered; null means all of them. */
  onForbidden(subject: string | null, error: BatonError): void;
  /** For people and metrics; nothing to be done in code. */
  onFault(subject: string | null, error: BatonError): void;
}

/**
 * A plain Uint8Array of its own bytes. Not `slice`, which on a Buffer shares; and not a view, which
 * would keep a whole socket chunk alive for one small message.
 */
export function copyOf(payload: Uint8Array): Uint8Array {
  return new Uint8Array(payload);
}
