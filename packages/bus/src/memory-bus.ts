import type { Timers } from "@baton/ports";
import { BusConnection } from "./bus-connection.ts";
import { type BusHooks, type BusLimits, busLimitsDefault, type ObservedBus } from "./bus-events.ts";
import { MemoryHub } from "./memory-hub.ts";
import { systemTimers } from "./system-timers.ts";

export interface MemoryBusOptions {
  /** Default 1 MiB, as nats-server has it. */
  readonly maxPayloadBytes?: number;
  /** A simulator's own; they serve deadlines and, with delay 0, the turns between batches. */
  readonly timers?: Timers;
  readonly limits?: Partial<BusLimits>;
}

export interface MemoryClientOptions extends BusHooks {
  /** The service's name, for error texts. */
  readonly name?: string;
  /** Over those of the hub. */
  readonly limits?: Partial<BusLimits>;
}

/** Each `connect` is a connection of its own: one service drains it and the others go on. */
export interface MemoryBus {
  connect(options?: MemoryClientOptions): ObservedBus;
  /** What a lost NATS connection does, to all connections at once; for simulation and tests. */
  interrupt(): void;
  resume(): void;
}

/**
 * The bus inside one process, with what services see of NATS: the same bounds, errors, states and
 * order. Queue groups take turns, so equal calls give equal deliveries. Payloads are copied.
 */
export function createMemoryBus(options: MemoryBusOptions = {}): MemoryBus {
  const hub = new MemoryHub(options.maxPayloadBytes ?? 1024 * 1024);
  const timers = options.timers ?? systemTimers;
  return {
    connect: ({ name = "memory", limits, ...hooks } = {}) =>
      new BusConnection((events) => hub.attach(events), {
        name,
        timers,
        limits: { ...busLimitsDefault, ...options.limits, ...limits },
        hooks,
      }),
    interrupt: () => hub.setUp(false),
    resume: () => hub.setUp(true),
  };
}
