export type {
  Bus,
  BusHandler,
  BusMessage,
  BusState,
  BusSubscription,
} from "./bus.ts";
export type { Clock, TimerHandle, Timers } from "./clock.ts";
export type {
  EngineCall,
  EngineClient,
  EngineExchange,
  EngineFault,
  EngineHandler,
  EngineText,
} from "./engine-client.ts";
export type { ClientRequest, FrontendApi, GetAnswer, ResponseSink, Route } from "./http.ts";
export type { KvEventSource, KvFeed, KvFeedOptions, KvFeedSink } from "./kv-event-source.ts";
export type { LogFields, Logger } from "./logger.ts";
export {
  type Counter,
  defineMetrics,
  type Gauge,
  type Histogram,
  type Labels,
  type MetricDefinition,
  type Metrics,
} from "./metrics.ts";
export type { Tokenized, TokenizeInput, Tokenizer } from "./tokenizer.ts";
