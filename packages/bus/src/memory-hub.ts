import { isPattern, matchTokens } from "./subject.ts";
import {
  copyOf,
  type ListenKind,
  type ListenSpec,
  type Refusal,
  type Wire,
  type WireEvents,
  type WireListener,
  type WireReceiver,
  type WireReply,
} from "./wire.ts";

interface Listener extends ListenSpec {
  readonly tokens: readonly string[];
  readonly receive: WireReceiver;
  /** Whose turn it is, while this is the first of its group. */
  turn: number;
}

/**
 * Routes between the connections of one process. As on NATS, a message goes to every plain listener
 * and to one member of each queue group, and a request has a responder as soon as anybody listens,
 * even if only to publications: what hides a missing server there hides it here.
 */
export class MemoryHub {
  readonly maxPayloadBytes: number;
  readonly #connections = new Set<WireEvents>();
  readonly #exact = new Map<string, Listener[]>();
  readonly #patterns: Listener[] = [];
  #isUp = true;

  constructor(maxPayloadBytes: number) {
    this.maxPayloadBytes = maxPayloadBytes;
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  attach(events: WireEvents): Wire {
    this.#connections.add(events);
    return new MemoryWire(this, events);
  }

  detach(events: WireEvents): void {
    this.#connections.delete(events);
  }

  setUp(isUp: boolean): void {
    if (this.#isUp === isUp) return;
    this.#isUp = isUp;
    for (const events of [...this.#connections]) {
      if (isUp) events.onConnected();
      else events.onDisconnected();
    }
  }

  listen(spec: ListenSpec, receive: WireReceiver): WireListener {
    const listener: Listener = { ...spec, tokens: spec.subject.split("."), receive, turn: 0 };
    const list = isPattern(spec.subject) ? this.#patterns : this.#exactly(spec.subject);
    list.push(listener);
    const close = (): void => this.#forget(list, listener);
    return {
      close,
      drain: () => {
        close();
        return Promise.resolve();
      },
    };
  }

  /** False when nobody listens. */
  route(kind: ListenKind, subject: string, payload: Uint8Array, reply: WireReply | null): boolean {
    const matching = this.#matching(subject);
    let groups: Map<string, Listener[]> | null = null;
    for (const listener of matching) {
      if (listener.kind !== kind) continue;
      if (listener.queue === null) listener.receive(subject, copyOf(payload), reply);
      else {
        groups ??= new Map();
        const members = groups.get(listener.queue);
        if (members === undefined) groups.set(listener.queue, [listener]);
        else members.push(listener);
      }
    }
    if (groups === null) return matching.length > 0;
    for (const members of groups.values()) {
      const turn = members[0]!.turn++;
      members[turn % members.length]!.receive(subject, copyOf(payload), reply);
    }
    return true;
  }

  #exactly(subject: string): Listener[] {
    let list = this.#exact.get(subject);
    if (list === undefined) {
      list = [];
      this.#exact.set(subject, list);
    }
    return list;
  }

  #matching(subject: string): readonly Listener[] {
    const exact = this.#exact.get(subject) ?? [];
    if (this.#patterns.length === 0) return exact;
    const tokens = subject.split(".");
    const wild = this.#patterns.filter((listener) => matchTokens(listener.tokens, tokens));
    return wild.length === 0 ? exact : [...exact, ...wild];
  }

  #forget(list: Listener[], listener: Listener): void {
    const index = list.indexOf(listener);
    if (index < 0) return;
    list.splice(index, 1);
    if (list.length === 0) this.#exact.delete(listener.subject);
  }
}

class MemoryWire implements Wire {
  readonly #hub: MemoryHub;
  readonly #events: WireEvents;

  constructor(hub: MemoryHub, events: WireEvents) {
    this.#hub = hub;
    this.#events = events;
  }

  isUp(): boolean {
    return this.#hub.isUp;
  }

  maxPayloadBytes(): number {
    return this.#hub.maxPayloadBytes;
  }

  blocked(): null {
    return null;
  }

  publish(subject: string, payload: Uint8Array): boolean {
    if (this.#hub.isUp) this.#hub.route("publications", subject, payload, null);
    return this.#hub.isUp;
  }

  request(subject: string, token: number, payload: Uint8Array): boolean {
    if (!this.#hub.isUp) return false;
    const reply = new MemoryReply(this.#hub, this.#events, token);
    const isHeard = this.#hub.route("requests", subject, payload, reply);
    if (!isHeard) this.#events.onRefusal(token, "BATON_BUS_NO_RESPONDER", null);
    return true;
  }

  listen(spec: ListenSpec, receive: WireReceiver): WireListener {
    return this.#hub.listen(spec, receive);
  }

  flush(): Promise<boolean> {
    return Promise.resolve(this.#hub.isUp);
  }

  close(): Promise<void> {
    this.#hub.detach(this.#events);
    return Promise.resolve();
  }
}

class MemoryReply implements WireReply {
  readonly #hub: MemoryHub;
  readonly #events: WireEvents;
  readonly #token: number;

  constructor(hub: MemoryHub, events: WireEvents, token: number) {
    this.#hub = hub;
    this.#events = events;
    this.#token = token;
  }

  answer(payload: Uint8Array): void {
    if (this.#hub.isUp) this.#events.onReply(this.#token, copyOf(payload));
  }

  refuse(refusal: Refusal): void {
    if (this.#hub.isUp) this.#events.onRefusal(this.#token, refusal.code, refusal.message);
  }
}
