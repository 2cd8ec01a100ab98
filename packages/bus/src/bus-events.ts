import type { BatonError } from "@baton/domain";
import type { Bus } from "@baton/ports";

/** A subscription did not keep up; said once when it starts to drop, again after it caught up. */
export interface SlowConsumer {
  readonly subject: string;
  readonly queue: string | null;
  /** Messages that this subscription has dropped since it began. */
  readonly droppedTotal: number;
}

/** Something went wrong that no caller is told of. */
export interface BusFault {
  /**
   * `handler`: it threw or rejected, and the requester knows. `listener`: it threw.
   * `forbidden`: the server refused a subject. `connection`: lost, refused, or not authorised.
   */
  readonly kind: "handler" | "listener" | "forbidden" | "connection";
  readonly subject: string | null;
  readonly error: BatonError;
  /** What was thrown, for `handler` and `listener`: the host decides what an InvariantError means. */
  readonly thrown?: unknown;
}

/** Left out, both become Node process warnings: nothing is silent. */
export interface BusHooks {
  readonly onSlowConsumer?: (notice: SlowConsumer) => void;
  readonly onError?: (fault: BusFault) => void;
}

export interface BusLimits {
  /** Publications that one subscription holds undelivered; beyond it the oldest are dropped. */
  readonly pendingMessagesMax: number;
  /** Bytes of the same; one message over it is still held. */
  readonly pendingBytesMax: number;
  /** Requests that one `serve` has queued or running; beyond it requesters get BATON_SATURATED. */
  readonly servedRequestsMax: number;
  /** Own requests without an answer yet; beyond it `request` gives BATON_SATURATED. */
  readonly requestsMax: number;
  /** How long `drain` waits for handlers; what runs on is refused to its requesters. */
  readonly drainMsMax: number;
}

export const busLimitsDefault: BusLimits = {
  pendingMessagesMax: 65_536,
  pendingBytesMax: 64 * 1024 * 1024,
  servedRequestsMax: 65_536,
  requestsMax: 65_536,
  drainMsMax: 10_000,
};

/** Totals since the connection began, and two gauges (`…Pending`). */
export interface BusStats {
  readonly messagesDropped: number;
  readonly requestsRefused: number;
  readonly handlersFailed: number;
  readonly listenersFailed: number;
  readonly forbidden: number;
  readonly disconnects: number;
  readonly messagesPending: number;
  readonly requestsPending: number;
}

export interface ObservedBus extends Bus {
  stats(): BusStats;
}

export function warnOfSlowConsumer(notice: SlowConsumer): void {
  process.emitWarning(`slow consumer of ${notice.subject}: ${notice.droppedTotal} dropped`, {
    type: "BatonBus",
  });
}

export function warnOfFault(fault: BusFault): void {
  process.emitWarning(`${fault.error.code}: ${fault.error.message}`, { type: "BatonBus" });
}
