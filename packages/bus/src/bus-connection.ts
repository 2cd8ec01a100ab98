import { type BatonError, batonError, type ErrorCode } from "@baton/domain";
import { fail, invariant, type Outcome, ok } from "@baton/kit";
import type { BusHandler, BusMessage, BusState, BusSubscription, Timers } from "@baton/ports";
import { BusDesk } from "./bus-desk.ts";
import type { BusHooks, BusLimits, BusStats, ObservedBus } from "./bus-events.ts";
import { Listening } from "./listening.ts";
import { deadlinePassed, RequestTable } from "./request-table.ts";
import { Serving } from "./serving.ts";
import { checkPattern, checkQueue, checkSubject } from "./subject.ts";
import type { Wire, WireEvents } from "./wire.ts";

/** One service's `Bus` over a wire. */
export class BusConnection implements ObservedBus {
  readonly #timers: Timers;
  readonly #wire: Wire;
  readonly #desk: BusDesk;
  readonly #requests: RequestTable;
  readonly #listenings = new Set<Listening>();
  readonly #servings = new Set<Serving>();
  readonly #stateListeners = new Set<(state: BusState) => void>();
  #state: BusState;
  #drained: Promise<void> | null = null;
  #onIdle: () => void = () => {};

  constructor(
    makeWire: (events: WireEvents) => Wire,
    options: {
      readonly name: string;
      readonly timers: Timers;
      readonly limits: BusLimits;
      readonly hooks: BusHooks;
    },
  ) {
    this.#timers = options.timers;
    this.#requests = new RequestTable(options.timers);
    this.#wire = makeWire(this.#wireEvents());
    this.#state = this.#wire.isUp() ? "connected" : "reconnecting";
    this.#desk = new BusDesk({ ...options, wire: this.#wire, onIdle: () => this.#onIdle() });
  }

  get maxPayloadBytes(): number {
    return this.#wire.maxPayloadBytes();
  }

  state(): BusState {
    return this.#state;
  }

  onState(listener: (state: BusState) => void): BusSubscription {
    const own = (state: BusState): void => listener(state);
    this.#stateListeners.add(own);
    return { close: () => this.#stateListeners.delete(own) };
  }

  stats(): BusStats {
    const desk = this.#desk;
    return {
      messagesDropped: desk.messagesDropped,
      requestsRefused: desk.requestsRefused,
      handlersFailed: desk.handlersFailed,
      listenersFailed: desk.listenersFailed,
      forbidden: desk.forbidden,
      disconnects: desk.disconnects,
      messagesPending: desk.inlet.messages,
      requestsPending: this.#requests.size,
    };
  }

  request(
    subject: string,
    payload: Uint8Array,
    options: { readonly deadlineMs: number },
  ): Promise<Outcome<Uint8Array, BatonError>> {
    checkSubject(subject);
    const { deadlineMs } = options;
    invariant(!Number.isNaN(deadlineMs), "deadlineMs is a number");
    const error = this.#sendError(subject, payload.length) ?? this.#requestError(subject);
    if (error !== null) return Promise.resolve(fail(error));
    if (deadlineMs <= 0) return Promise.resolve(fail(deadlinePassed(subject, deadlineMs)));
    const answer = this.#requests.open(subject, deadlineMs);
    const { token } = this.#requests;
    if (!this.#wire.request(subject, token, payload)) {
      this.#requests.settle(token, fail(notConnected(subject)));
    }
    return answer;
  }

  publish(subject: string, payload: Uint8Array): Outcome<void, BatonError> {
    checkSubject(subject);
    const error = this.#sendError(subject, payload.length);
    if (error !== null) return fail(error);
    return this.#wire.publish(subject, payload) ? ok(undefined) : fail(notConnected(subject));
  }

  subscribe(
    subject: string,
    options: { readonly queue?: string },
    listener: (message: BusMessage) => void,
  ): BusSubscription {
    checkPattern(subject);
    const queue = options.queue ?? null;
    if (queue !== null) checkQueue(queue);
    if (this.#isEnding()) return ended;
    const listening = new Listening(this.#desk, { subject, queue }, listener);
    return this.#keep(this.#listenings, listening);
  }

  serve(
    subject: string,
    options: { readonly queue: string },
    handler: BusHandler,
  ): BusSubscription {
    checkPattern(subject);
    checkQueue(options.queue);
    if (this.#isEnding()) return ended;
    const serving = new Serving(this.#desk, { subject, queue: options.queue }, handler);
    return this.#keep(this.#servings, serving);
  }

  async flush(): Promise<void> {
    while (this.state() !== "closed") {
      if (!this.#wire.isUp()) await this.#nextState();
      else if (await this.#wire.flush()) return;
    }
  }

  drain(): Promise<void> {
    this.#drained ??= this.#drain();
    return this.#drained;
  }

  async #drain(): Promise<void> {
    if (this.#state === "closed") return;
    this.#setState("draining");
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = this.#timers.after(this.#desk.limits.drainMsMax, resolve);
    await Promise.race([this.#finishWork(), late]);
    for (const serving of this.#servings) serving.abandon();
    // What was just refused or answered has to leave before the connection is cut.
    await Promise.race([this.#wire.flush(), late]);
    timer.cancel();
    await this.#wire.close();
    this.#closed();
  }

  async #finishWork(): Promise<void> {
    await Promise.all([...this.#listenings, ...this.#servings].map((each) => each.drain()));
    if (this.#desk.isIdle) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onIdle = resolve;
    await promise;
  }

  #isEnding(): boolean {
    return this.#state === "draining" || this.#state === "closed";
  }

  #keep<T extends BusSubscription>(all: Set<T>, subscription: T): BusSubscription {
    all.add(subscription);
    return {
      close: () => {
        all.delete(subscription);
        subscription.close();
      },
    };
  }

  /** Why nothing of `bytes` can be sent on `subject` now. */
  #sendError(subject: string, bytes: number): BatonError | null {
    const limit = this.#wire.maxPayloadBytes();
    if (bytes > limit) {
      const text = `${bytes} bytes for ${subject}; the bus takes ${limit}`;
      return batonError("BATON_BUS_PAYLOAD_TOO_LARGE", text);
    }
    if (this.#state === "closed") return notConnected(subject);
    return this.#wire.blocked(subject);
  }

  #requestError(subject: string): BatonError | null {
    if (this.#state === "draining") {
      return batonError("BATON_BUS_CLOSED", `the bus is draining; ${subject} was not asked`);
    }
    const { requestsMax } = this.#desk.limits;
    if (this.#requests.size < requestsMax) return null;
    return batonError("BATON_SATURATED", `${requestsMax} requests wait for an answer over the bus`);
  }

  #wireEvents(): WireEvents {
    return {
      onConnected: () => this.#setState("connected"),
      onDisconnected: () => {
        this.#desk.disconnects++;
        this.#setState("reconnecting");
        this.#requests.failAll(null, connectionLost);
      },
      onClosed: () => this.#closed(),
      onReply: (token, payload) => this.#requests.settle(token, ok(payload)),
      onRefusal: (token, code, detail) => this.#refused(token, code, detail),
      onForbidden: (subject, error) => this.#requests.failAll(subject, () => error),
      onFault: (subject, error) => {
        const isForbidden = error.code === "BATON_BUS_FORBIDDEN";
        if (isForbidden) this.#desk.forbidden++;
        this.#desk.fault(isForbidden ? "forbidden" : "connection", subject, error);
      },
    };
  }

  #refused(token: number, code: ErrorCode, detail: string | null): void {
    const subject = this.#requests.subjectOf(token);
    const text = detail === null ? `nobody serves ${subject}` : `${subject}: ${detail}`;
    this.#requests.settle(token, fail(batonError(code, text)));
  }

  #closed(): void {
    this.#setState("closed");
    this.#requests.failAll(null, connectionLost);
    for (const each of [...this.#listenings, ...this.#servings]) each.close();
    this.#listenings.clear();
    this.#servings.clear();
  }

  #setState(next: BusState): void {
    if (this.#state === next || this.#state === "closed") return;
    // A drain goes on through a lost and a regained connection.
    if (this.#state === "draining" && next !== "closed") return;
    this.#state = next;
    for (const listener of [...this.#stateListeners]) listener(next);
  }

  #nextState(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const subscription = this.onState(() => {
      subscription.close();
      resolve();
    });
    return promise;
  }
}

const ended: BusSubscription = { close: () => {} };

function notConnected(subject: string): BatonError {
  return batonError("BATON_BUS_CLOSED", `no connection; nothing was sent on ${subject}`);
}

function connectionLost(subject: string): BatonError {
  const text = `the connection went while ${subject} was asked; it may have been handled`;
  return batonError("BATON_BUS_CLOSED", text);
}
