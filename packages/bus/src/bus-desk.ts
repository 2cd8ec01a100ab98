import type { BatonError } from "@baton/domain";
import type { Timers } from "@baton/ports";
import {
  type BusFault,
  type BusHooks,
  type BusLimits,
  type SlowConsumer,
  warnOfFault,
  warnOfSlowConsumer,
} from "./bus-events.ts";
import { Inlet } from "./inlet.ts";
import type { Wire } from "./wire.ts";

/** What the parts of one connection share: its inlet, bounds, hooks and counts. */
export class BusDesk {
  readonly name: string;
  readonly limits: BusLimits;
  readonly inlet: Inlet;
  readonly wire: Wire;
  /** Handlers that have not answered. */
  running = 0;
  messagesDropped = 0;
  requestsRefused = 0;
  handlersFailed = 0;
  listenersFailed = 0;
  forbidden = 0;
  disconnects = 0;
  readonly #onSlowConsumer: (notice: SlowConsumer) => void;
  readonly #onError: (fault: BusFault) => void;
  readonly #onIdle: () => void;

  constructor(options: {
    readonly name: string;
    readonly limits: BusLimits;
    readonly hooks: BusHooks;
    readonly wire: Wire;
    readonly timers: Timers;
    readonly onIdle: () => void;
  }) {
    this.name = options.name;
    this.limits = options.limits;
    this.wire = options.wire;
    this.inlet = new Inlet(options.timers, () => this.checkIdle());
    this.#onSlowConsumer = options.hooks.onSlowConsumer ?? warnOfSlowConsumer;
    this.#onError = options.hooks.onError ?? warnOfFault;
    this.#onIdle = options.onIdle;
  }

  get isIdle(): boolean {
    return this.inlet.messages === 0 && this.running === 0;
  }

  checkIdle(): void {
    if (this.isIdle) this.#onIdle();
  }

  slow(notice: SlowConsumer): void {
    this.#onSlowConsumer(notice);
  }

  fault(kind: BusFault["kind"], subject: string | null, error: BatonError, thrown?: unknown): void {
    this.#onError(
      thrown === undefined ? { kind, subject, error } : { kind, subject, error, thrown },
    );
  }
}
