import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import type { Bus, Timers } from "@baton/ports";

type Answer = Outcome<Uint8Array, BatonError>;

/**
 * A network between a service and the bus: each message and each answer takes as long as `delayMs`
 * says. What one service sends stays in order, answers do not. It keeps what went through.
 */
export class DelayedBus implements Bus {
  readonly #bus: Bus;
  readonly #timers: Timers;
  readonly #nowMs: () => number;
  readonly #delayMs: () => number;
  #lastSentMs = 0;
  readonly published: { readonly subject: string; readonly payload: Uint8Array }[] = [];
  /** `answer` is what the service got, its own deadline included; null until then. */
  readonly requests: {
    readonly subject: string;
    readonly payload: Uint8Array;
    answer: Answer | null;
  }[] = [];

  constructor(bus: Bus, options: { readonly timers: Timers; nowMs(): number; delayMs(): number }) {
    this.#bus = bus;
    this.#timers = options.timers;
    this.#nowMs = options.nowMs;
    this.#delayMs = options.delayMs;
  }

  get maxPayloadBytes(): number {
    return this.#bus.maxPayloadBytes;
  }

  state(): ReturnType<Bus["state"]> {
    return this.#bus.state();
  }

  onState(...args: Parameters<Bus["onState"]>): ReturnType<Bus["onState"]> {
    return this.#bus.onState(...args);
  }

  request(
    subject: string,
    payload: Uint8Array,
    options: { readonly deadlineMs: number },
  ): Promise<Answer> {
    const entry = { subject, payload: payload.slice(), answer: null as Answer | null };
    this.requests.push(entry);
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const settle = (answer: Answer) => {
      deadline.cancel();
      entry.answer ??= answer;
      resolve(answer);
    };
    const late = batonError("BATON_BUS_DEADLINE", `no answer on ${subject}`);
    const deadline = this.#timers.after(options.deadlineMs, () => settle(fail(late)));
    this.#send(() => {
      void this.#bus
        .request(subject, entry.payload, { deadlineMs: Number.POSITIVE_INFINITY })
        .then((answer) => this.#timers.after(this.#delayMs(), () => settle(answer)));
    });
    return promise;
  }

  publish(subject: string, payload: Uint8Array): Outcome<void, BatonError> {
    const own = payload.slice();
    this.published.push({ subject, payload: own });
    this.#send(() => void this.#bus.publish(subject, own));
    return ok(undefined);
  }

  subscribe(...args: Parameters<Bus["subscribe"]>): ReturnType<Bus["subscribe"]> {
    return this.#bus.subscribe(...args);
  }

  serve(...args: Parameters<Bus["serve"]>): ReturnType<Bus["serve"]> {
    return this.#bus.serve(...args);
  }

  flush(): Promise<void> {
    return this.#bus.flush();
  }

  drain(): Promise<void> {
    return this.#bus.drain();
  }

  #send(send: () => void): void {
    const nowMs = this.#nowMs();
    this.#lastSentMs = Math.max(this.#lastSentMs, nowMs + this.#delayMs());
    this.#timers.after(this.#lastSentMs - nowMs, send);
  }
}
