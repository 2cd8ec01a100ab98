export {
  type BusFault,
  type BusHooks,
  type BusLimits,
  type BusStats,
  busLimitsDefault,
  type ObservedBus,
  type SlowConsumer,
} from "./bus-events.ts";
export {
  createMemoryBus,
  type MemoryBus,
  type MemoryBusOptions,
  type MemoryClientOptions,
} from "./memory-bus.ts";
export { connectNatsBus } from "./nats-bus.ts";
export type { NatsAuth, NatsBusOptions, NatsTls } from "./nats-options.ts";
export { type NatsUser, renderNatsAuthorization } from "./permissions.ts";
