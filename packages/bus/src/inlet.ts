import type { Timers } from "@baton/ports";
import type { WireReply } from "./wire.ts";

/** Messages handed out before the event loop gets a turn, so that sockets and timers are served. */
const batchMessages = 128;

/** One message that waits for its turn, linked into the connection's and its lane's order. */
interface Waiting {
  readonly lane: Lane;
  readonly subject: string;
  readonly payload: Uint8Array;
  readonly reply: WireReply | null;
  previous: Waiting | null;
  next: Waiting | null;
  nextOfLane: Waiting | null;
}

/** One subscription's share of the inlet. */
export class Lane {
  readonly deliver: (subject: string, payload: Uint8Array, reply: WireReply | null) => void;
  messages = 0;
  bytes = 0;
  first: Waiting | null = null;
  last: Waiting | null = null;

  constructor(deliver: Lane["deliver"]) {
    this.deliver = deliver;
  }
}

/**
 * Messages that arrived at one connection and are not handed out yet, in order of arrival over all
 * subscriptions: a publisher's order holds even across subjects. Hands out from a microtask, never
 * from inside the sender's call, and gives the event loop a turn after each batch. Every call is
 * O(1) (`clear`: in what the lane holds); who pushes keeps the bounds of the lane.
 */
export class Inlet {
  readonly #timers: Timers;
  readonly #onEmpty: () => void;
  readonly #run = (): void => this.#handOut();
  readonly #runAfterTurn = (): void => {
    this.#batchLeft = batchMessages;
    this.#handOut();
  };
  #first: Waiting | null = null;
  #last: Waiting | null = null;
  #messages = 0;
  #batchLeft = batchMessages;
  #isScheduled = false;

  constructor(timers: Timers, onEmpty: () => void) {
    this.#timers = timers;
    this.#onEmpty = onEmpty;
  }

  get messages(): number {
    return this.#messages;
  }

  push(lane: Lane, subject: string, payload: Uint8Array, reply: WireReply | null): void {
    const waiting: Waiting = {
      lane,
      subject,
      payload,
      reply,
      previous: this.#last,
      next: null,
      nextOfLane: null,
    };
    if (this.#last === null) this.#first = waiting;
    else this.#last.next = waiting;
    this.#last = waiting;
    if (lane.last === null) lane.first = waiting;
    else lane.last.nextOfLane = waiting;
    lane.last = waiting;
    lane.messages++;
    lane.bytes += payload.length;
    this.#messages++;
    this.#schedule();
  }

  /** Removes the oldest message of a lane that holds one. */
  dropOldest(lane: Lane): void {
    if (lane.first !== null) this.#unlink(lane.first);
  }

  /** Removes all of a lane; gives the addresses that wait for an answer. */
  clear(lane: Lane): WireReply[] {
    const replies: WireReply[] = [];
    while (lane.first !== null) {
      if (lane.first.reply !== null) replies.push(lane.first.reply);
      this.#unlink(lane.first);
    }
    return replies;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    if (this.#batchLeft > 0) queueMicrotask(this.#run);
    else this.#timers.after(0, this.#runAfterTurn);
  }

  #handOut(): void {
    this.#isScheduled = false;
    try {
      while (this.#first !== null && this.#batchLeft > 0) {
        this.#batchLeft--;
        const { lane, subject, payload, reply } = this.#first;
        this.#unlink(this.#first);
        lane.deliver(subject, payload, reply);
      }
    } finally {
      if (this.#first === null) this.#onEmpty();
      else this.#schedule();
    }
  }

  /** Always the oldest of its lane, which keeps the lane singly linked. */
  #unlink(waiting: Waiting): void {
    const { lane, previous, next } = waiting;
    if (previous === null) this.#first = next;
    else previous.next = next;
    if (next === null) this.#last = previous;
    else next.previous = previous;
    lane.first = waiting.nextOfLane;
    if (lane.first === null) lane.last = null;
    lane.messages--;
    lane.bytes -= waiting.payload.length;
    this.#messages--;
  }
}
