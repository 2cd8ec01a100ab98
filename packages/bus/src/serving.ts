import { batonError } from "@baton/domain";
import type { BusHandler, BusSubscription } from "@baton/ports";
import type { BusDesk } from "./bus-desk.ts";
import { Lane } from "./inlet.ts";
import type { Refusal, WireListener, WireReply } from "./wire.ts";

/** A subscription to requests. Every request that reaches it gets exactly one answer. */
export class Serving implements BusSubscription {
  readonly #desk: BusDesk;
  readonly #handler: BusHandler;
  readonly #lane: Lane;
  readonly #wireListener: WireListener;
  /** Requests whose handler has not answered. */
  readonly #running = new Set<WireReply>();

  constructor(
    desk: BusDesk,
    spec: { readonly subject: string; readonly queue: string },
    handler: BusHandler,
  ) {
    this.#desk = desk;
    this.#handler = handler;
    this.#lane = new Lane((subject, payload, reply) => this.#deliver(subject, payload, reply!));
    this.#wireListener = desk.wire.listen(
      { kind: "requests", ...spec },
      (subject, payload, reply) => this.#receive(subject, payload, reply!),
    );
  }

  /** Handlers that run already still answer; requests that wait for one are refused. */
  close(): void {
    this.#wireListener.close();
    for (const reply of this.#desk.inlet.clear(this.#lane)) this.#refuse(reply, stopped);
    this.#desk.checkIdle();
  }

  drain(): Promise<void> {
    return this.#wireListener.drain();
  }

  /** Refuses all that is queued or runs; answers that come later go nowhere. */
  abandon(): void {
    this.close();
    for (const reply of this.#running) if (this.#finish(reply)) this.#refuse(reply, stopped);
  }

  #receive(subject: string, payload: Uint8Array, reply: WireReply): void {
    const lane = this.#lane;
    const { servedRequestsMax, pendingBytesMax } = this.#desk.limits;
    const isFull =
      lane.messages + this.#running.size >= servedRequestsMax ||
      (lane.messages > 0 && lane.bytes + payload.length > pendingBytesMax);
    if (isFull) this.#refuse(reply, full);
    else this.#desk.inlet.push(lane, subject, payload, reply);
  }

  #deliver(subject: string, payload: Uint8Array, reply: WireReply): void {
    let answer: Uint8Array | Promise<Uint8Array>;
    try {
      answer = this.#handler({ subject, payload });
    } catch (thrown) {
      this.#failed(subject, reply, thrown);
      return;
    }
    if (answer instanceof Promise) {
      this.#running.add(reply);
      this.#desk.running++;
      void this.#await(subject, reply, answer);
    } else this.#answer(subject, reply, answer);
  }

  async #await(subject: string, reply: WireReply, answer: Promise<Uint8Array>): Promise<void> {
    try {
      const payload = await answer;
      if (this.#finish(reply)) this.#answer(subject, reply, payload);
    } catch (thrown) {
      this.#failed(subject, this.#finish(reply) ? reply : null, thrown);
    }
    this.#desk.checkIdle();
  }

  /** False when the request was abandoned before. */
  #finish(reply: WireReply): boolean {
    if (!this.#running.delete(reply)) return false;
    this.#desk.running--;
    return true;
  }

  #answer(subject: string, reply: WireReply, payload: Uint8Array): void {
    const limit = this.#desk.wire.maxPayloadBytes();
    if (!(payload instanceof Uint8Array)) {
      this.#failed(subject, reply, new TypeError("the handler's answer is not a Uint8Array"));
    } else if (payload.length > limit) {
      const text = `the answer of ${payload.length} bytes is over the bus's limit of ${limit}`;
      this.#failed(subject, reply, new RangeError(text));
    } else reply.answer(payload);
  }

  #failed(subject: string, reply: WireReply | null, thrown: unknown): void {
    this.#desk.handlersFailed++;
    const text = thrown instanceof Error ? thrown.message : String(thrown);
    const error = batonError("BATON_BUS_HANDLER_FAILED", `handler of ${subject} failed`, {
      cause: text,
    });
    reply?.refuse({
      code: "BATON_BUS_HANDLER_FAILED",
      message: `${this.#desk.name} failed: ${text}`,
    });
    this.#desk.fault("handler", subject, error, thrown);
  }

  #refuse(reply: WireReply, refusal: (desk: BusDesk) => Refusal): void {
    this.#desk.requestsRefused++;
    reply.refuse(refusal(this.#desk));
  }
}

function full(desk: BusDesk): Refusal {
  return { code: "BATON_SATURATED", message: `${desk.name} has too many requests waiting` };
}

function stopped(desk: BusDesk): Refusal {
  return { code: "BATON_BUS_HANDLER_FAILED", message: `${desk.name} stopped serving` };
}
