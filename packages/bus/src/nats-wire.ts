import { type BatonError, batonError } from "@baton/domain";
import {
  AuthorizationError,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  nuid,
  PermissionViolationError,
  UserAuthenticationExpiredError,
} from "nats";
import type { Backoff } from "./backoff.ts";
import { ForbiddenSubjects } from "./forbidden-subjects.ts";
import { NatsListener } from "./nats-listener.ts";
import { NatsReply, type ReplySender, readRefusal } from "./nats-reply.ts";
import { OutboundWindow } from "./outbound-window.ts";
import { isPattern } from "./subject.ts";
import {
  copyOf,
  type ListenSpec,
  type Wire,
  type WireEvents,
  type WireListener,
  type WireReceiver,
} from "./wire.ts";

/** Protocol bytes around a payload, roughly: verb, subject, reply, length. */
const framingBytes = 128;

/**
 * One NATS connection. Requests share one inbox subscription, and their reply subject ends in the
 * token, so that a request costs a map entry and a timer; the client's own `request` makes two
 * promises and a stack trace, and cannot fail early on a lost connection.
 */
export class NatsWire implements Wire, ReplySender {
  readonly #client: NatsConnection;
  readonly #events: WireEvents;
  readonly #backoff: Backoff;
  readonly #inbox: string;
  readonly #inboxListener: NatsListener;
  readonly #listeners = new Set<NatsListener>();
  readonly #window: OutboundWindow;
  readonly #forbidden = new ForbiddenSubjects();
  #inboxError: BatonError | null = null;
  #isUp = true;
  #maxPayloadBytes: number;

  constructor(
    client: NatsConnection,
    events: WireEvents,
    options: {
      readonly inboxPrefix: string;
      readonly backoff: Backoff;
      readonly outboundBytesMax: number;
    },
  ) {
    this.#client = client;
    this.#events = events;
    this.#backoff = options.backoff;
    this.#maxPayloadBytes = client.info!.max_payload;
    this.#window = new OutboundWindow({
      bytesMax: options.outboundBytesMax,
      probe: () => client.flush(),
    });
    this.#inbox = `${options.inboxPrefix}.${nuid.next()}.`;
    this.#inboxListener = new NatsListener(client, `${this.#inbox}*`, null, (message) =>
      this.#onReply(message),
    );
    void this.#watch();
  }

  isUp(): boolean {
    return this.#isUp;
  }

  maxPayloadBytes(): number {
    // The client forgets the server's INFO while it reconnects.
    this.#maxPayloadBytes = this.#client.info?.max_payload ?? this.#maxPayloadBytes;
    return this.#maxPayloadBytes;
  }

  blocked(subject: string): BatonError | null {
    if (this.#forbidden.has(subject, performance.now())) return forbidden("publish on", subject);
    if (this.#window.isFull) {
      return batonError("BATON_SATURATED", "the NATS server does not keep up with what is sent");
    }
    return this.#inboxError;
  }

  publish(subject: string, payload: Uint8Array): boolean {
    return this.#send(subject, payload, undefined);
  }

  reply(subject: string, payload: Uint8Array, headers: MsgHdrs | null): void {
    this.#send(subject, payload, headers === null ? undefined : { headers });
  }

  request(subject: string, token: number, payload: Uint8Array): boolean {
    return this.#send(subject, payload, { reply: this.#inbox + token });
  }

  listen(spec: ListenSpec, receive: WireReceiver): WireListener {
    const isForRequests = spec.kind === "requests";
    const fixedSubject = isPattern(spec.subject) ? null : spec.subject;
    const listener = new NatsListener(this.#client, spec.subject, spec.queue, (message) => {
      const reply = message.reply;
      if ((reply !== undefined && reply !== "") !== isForRequests) return;
      const subject = fixedSubject ?? message.subject;
      receive(subject, copyOf(message.data), isForRequests ? new NatsReply(this, reply!) : null);
    });
    this.#listeners.add(listener);
    const forget = (): void => {
      this.#listeners.delete(listener);
    };
    return {
      close: () => {
        forget();
        listener.close();
      },
      drain: () => {
        forget();
        return listener.drain(this.#isUp);
      },
    };
  }

  async flush(): Promise<boolean> {
    if (!this.#isUp) return false;
    try {
      await this.#client.flush();
      return true;
    } catch {
      // The client rejects when the connection goes; `onDisconnected` tells everybody.
      return false;
    }
  }

  close(): Promise<void> {
    return this.#client.close();
  }

  #send(
    subject: string,
    payload: Uint8Array,
    options: Parameters<NatsConnection["publish"]>[2],
  ): boolean {
    // The client would keep what is sent while disconnected, without a bound, and then lose it.
    if (!this.#isUp || this.#client.isClosed()) return false;
    // The client reads the bytes only in a later microtask.
    this.#client.publish(subject, copyOf(payload), options);
    this.#window.add(payload.length + framingBytes);
    return true;
  }

  #onReply(message: Msg): void {
    const token = Number(message.subject.slice(this.#inbox.length));
    const { headers } = message;
    if (headers === undefined) this.#events.onReply(token, copyOf(message.data));
    else {
      const { code, detail } = readRefusal(headers);
      this.#events.onRefusal(token, code, detail);
    }
  }

  async #watch(): Promise<void> {
    for await (const status of this.#client.status()) {
      if (status.type === "disconnect") this.#disconnected();
      else if (status.type === "reconnecting") this.#backoff.failed();
      else if (status.type === "reconnect") this.#reconnected();
      else if (status.type === "error") this.#onError(status.error);
    }
    this.#isUp = false;
    this.#events.onClosed();
  }

  #disconnected(): void {
    this.#isUp = false;
    this.#window.reset();
    this.#events.onDisconnected();
    const text = "the connection to NATS went; reconnecting";
    this.#events.onFault(null, batonError("BATON_BUS_CLOSED", text));
  }

  #reconnected(): void {
    this.#isUp = true;
    this.#backoff.reset();
    // The server may have come back with other permissions: all is tried again.
    this.#forbidden.clear();
    this.#inboxError = null;
    this.#inboxListener.reopen();
    for (const listener of this.#listeners) listener.reopen();
    this.#events.onConnected();
  }

  #onError(error: Error): void {
    if (error instanceof PermissionViolationError) this.#onForbidden(error);
    else if (
      error instanceof AuthorizationError ||
      error instanceof UserAuthenticationExpiredError
    ) {
      const text = "NATS refuses the credentials; trying on";
      const cause = { cause: error.message };
      this.#events.onFault(null, batonError("BATON_BUS_UNAUTHORIZED", text, cause));
    } else {
      const text = "NATS reported an error on the connection";
      const cause = { cause: error.message };
      this.#events.onFault(null, batonError("BATON_BUS_CLOSED", text, cause));
    }
  }

  #onForbidden({ operation, subject }: PermissionViolationError): void {
    if (operation === "publish") {
      const error = forbidden("publish on", subject);
      const isNew = this.#forbidden.add(subject, performance.now());
      this.#events.onForbidden(subject, error);
      if (isNew) this.#events.onFault(subject, error);
      return;
    }
    const error = forbidden("subscribe to", subject);
    if (subject === this.#inboxListener.subject) {
      this.#inboxError = error;
      this.#events.onForbidden(null, error);
    }
    this.#events.onFault(subject, error);
  }
}

function forbidden(verb: string, subject: string): BatonError {
  return batonError("BATON_BUS_FORBIDDEN", `NATS does not let this user ${verb} ${subject}`);
}
