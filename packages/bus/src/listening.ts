import { batonError } from "@baton/domain";
import type { BusMessage, BusSubscription } from "@baton/ports";
import type { BusDesk } from "./bus-desk.ts";
import { Lane } from "./inlet.ts";
import type { WireListener } from "./wire.ts";

/**
 * A subscription to publications. It holds a bounded number of them; when it falls behind, the
 * oldest go, since for views and heartbeats the newest is worth most.
 */
export class Listening implements BusSubscription {
  readonly #desk: BusDesk;
  readonly #subject: string;
  readonly #queue: string | null;
  readonly #listener: (message: BusMessage) => void;
  readonly #lane: Lane;
  readonly #wireListener: WireListener;
  #dropped = 0;
  /** Said once per fall, with the next delivery; armed again when the lane has run empty. */
  #notice: "armed" | "due" | "said" = "armed";

  constructor(
    desk: BusDesk,
    spec: { readonly subject: string; readonly queue: string | null },
    listener: (message: BusMessage) => void,
  ) {
    this.#desk = desk;
    this.#subject = spec.subject;
    this.#queue = spec.queue;
    this.#listener = listener;
    this.#lane = new Lane((subject, payload) => this.#deliver(subject, payload));
    // A group of its own: one queue name may both subscribe and serve without taking messages
    // from each other.
    const queue = spec.queue === null ? null : `${spec.queue}.publications`;
    this.#wireListener = desk.wire.listen(
      { kind: "publications", subject: spec.subject, queue },
      (subject, payload) => this.#receive(subject, payload),
    );
  }

  close(): void {
    this.#wireListener.close();
    this.#desk.inlet.clear(this.#lane);
    this.#desk.checkIdle();
  }

  drain(): Promise<void> {
    return this.#wireListener.drain();
  }

  #receive(subject: string, payload: Uint8Array): void {
    const lane = this.#lane;
    const { pendingMessagesMax, pendingBytesMax } = this.#desk.limits;
    while (
      lane.messages >= pendingMessagesMax ||
      (lane.messages > 0 && lane.bytes + payload.length > pendingBytesMax)
    ) {
      this.#desk.inlet.dropOldest(lane);
      this.#dropped++;
      this.#desk.messagesDropped++;
      if (this.#notice === "armed") this.#notice = "due";
    }
    this.#desk.inlet.push(lane, subject, payload, null);
  }

  #deliver(subject: string, payload: Uint8Array): void {
    if (this.#notice === "due") {
      this.#notice = "said";
      this.#desk.slow({
        subject: this.#subject,
        queue: this.#queue,
        droppedTotal: this.#dropped,
      });
    }
    if (this.#lane.messages === 0) this.#notice = "armed";
    try {
      this.#listener({ subject, payload });
    } catch (thrown) {
      this.#desk.listenersFailed++;
      const text = thrown instanceof Error ? thrown.message : String(thrown);
      const error = batonError("BATON_BUS_HANDLER_FAILED", `listener of ${subject} threw`, {
        cause: text,
      });
      this.#desk.fault("listener", subject, error, thrown);
    }
  }
}
