import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import type { Timers } from "@baton/ports";
import { AuthorizationError, type ConnectionOptions, connect, type NatsConnection } from "nats";
import { Backoff } from "./backoff.ts";
import { BusConnection } from "./bus-connection.ts";
import { busLimitsDefault, type ObservedBus, warnOfFault } from "./bus-events.ts";
import { type NatsBusOptions, readNatsOptions } from "./nats-options.ts";
import { NatsWire } from "./nats-wire.ts";
import { systemTimers } from "./system-timers.ts";

/** Of one attempt; the shortest still lets a refusal be heard, so that the cause is a real one. */
const dialMsMin = 250;
const dialMsMax = 5_000;

/**
 * Connects to NATS. After the first connection it reconnects for ever; see README.md for what
 * callers see meanwhile. Errors: BATON_CONFIG_INVALID (URL, credential or TLS file),
 * BATON_BUS_UNAUTHORIZED at once, BATON_BUS_UNREACHABLE when `connectMsMax` has passed or `signal`
 * aborted.
 */
export async function connectNatsBus(
  options: NatsBusOptions,
): Promise<Outcome<ObservedBus, BatonError>> {
  const read = readNatsOptions(options);
  if (!read.ok) return read;
  const timers = options.timers ?? systemTimers;
  const backoff = new Backoff({
    firstMs: options.reconnectMsFirst ?? 50,
    maxMs: options.reconnectMsMax ?? 2_000,
  });
  const client: ConnectionOptions = {
    ...read.value.client,
    maxReconnectAttempts: -1,
    // A server that refuses once more after its restart may be mended: keep trying.
    ignoreAuthErrorAbort: true,
    reconnectDelayHandler: () => backoff.delayMs,
    pingInterval: options.pingIntervalMs ?? 5_000,
    maxPingOut: 2,
    noAsyncTraces: true,
  };
  const first = await new FirstConnection(client, read.value.shownUrl, {
    ...options,
    timers,
    backoff,
  }).open();
  if (!first.ok) return first;
  backoff.reset();
  const wireOptions = {
    inboxPrefix: read.value.inboxPrefix,
    backoff,
    outboundBytesMax: options.outboundBytesMax ?? 64 * 1024 * 1024,
  };
  const { name, onError, onSlowConsumer } = options;
  return ok(
    new BusConnection((events) => new NatsWire(first.value, events, wireOptions), {
      name,
      timers,
      limits: { ...busLimitsDefault, ...options.limits },
      hooks: { ...(onError && { onError }), ...(onSlowConsumer && { onSlowConsumer }) },
    }),
  );
}

/** Tries until one connection stands. The client itself would give up at the first refusal. */
class FirstConnection {
  readonly #client: ConnectionOptions;
  readonly #shownUrl: string;
  readonly #options: NatsBusOptions & { readonly timers: Timers; readonly backoff: Backoff };
  readonly #untilMs: number;
  readonly #aborted: Promise<void>;
  readonly #connectMsMax: number;

  constructor(
    client: ConnectionOptions,
    shownUrl: string,
    options: NatsBusOptions & { readonly timers: Timers; readonly backoff: Backoff },
  ) {
    this.#client = client;
    this.#shownUrl = shownUrl;
    this.#options = options;
    this.#connectMsMax = options.connectMsMax ?? 10_000;
    this.#untilMs = performance.now() + this.#connectMsMax;
    const { promise, resolve } = Promise.withResolvers<void>();
    options.signal?.addEventListener("abort", () => resolve(), { once: true });
    this.#aborted = promise;
  }

  async open(): Promise<Outcome<NatsConnection, BatonError>> {
    const { backoff, signal } = this.#options;
    let cause: string | null = null;
    while (!signal?.aborted) {
      try {
        return ok(await this.#dial());
      } catch (thrown) {
        if (thrown instanceof AuthorizationError) return fail(this.#unauthorized(thrown));
        const isFirst = cause === null;
        cause = causeText(thrown);
        if (isFirst) this.#say(cause);
      }
      if (performance.now() + backoff.delayMs >= this.#untilMs) break;
      await this.#wait(backoff.delayMs);
      backoff.failed();
    }
    return fail(this.#unreachable(cause ?? "not tried"));
  }

  #say(cause: string): void {
    const text = `NATS at ${this.#shownUrl} is not there yet; trying on`;
    const error = batonError("BATON_BUS_UNREACHABLE", text, { cause });
    (this.#options.onError ?? warnOfFault)({ kind: "connection", subject: null, error });
  }

  /** The client's own timeout leaves out name resolution, so the whole is bounded once more. */
  async #dial(): Promise<NatsConnection> {
    const leftMs = this.#untilMs - performance.now();
    const timeout = Math.ceil(Math.max(dialMsMin, Math.min(dialMsMax, leftMs)));
    const dialled = connect({ ...this.#client, timeout });
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = this.#options.timers.after(timeout * 2, resolve);
    try {
      const client = await Promise.race([dialled, late, this.#aborted]);
      if (client !== undefined) return client;
    } finally {
      timer.cancel();
    }
    // One that comes too late must not stay open; a refusal then has nobody to tell.
    dialled.then(
      (tooLate) => tooLate.close(),
      () => {},
    );
    throw new Error("timeout");
  }

  async #wait(delayMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = this.#options.timers.after(delayMs, resolve);
    await Promise.race([promise, this.#aborted]);
    timer.cancel();
  }

  #unauthorized(thrown: AuthorizationError): BatonError {
    const text = `NATS at ${this.#shownUrl} refuses the credentials of ${this.#options.name}`;
    return batonError("BATON_BUS_UNAUTHORIZED", text, { cause: thrown.message });
  }

  #unreachable(cause: string): BatonError {
    const waited = this.#options.signal?.aborted
      ? "before the wait was ended"
      : `within ${this.#connectMsMax} ms`;
    const text = `NATS at ${this.#shownUrl} took no connection ${waited}`;
    return batonError("BATON_BUS_UNREACHABLE", text, { cause });
  }
}

function causeText(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  return thrown.cause instanceof Error
    ? `${thrown.message} (${thrown.cause.message})`
    : thrown.message;
}
