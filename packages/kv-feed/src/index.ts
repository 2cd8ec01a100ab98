export { type KvFeedLimits, kvFeedLimitsDefault } from "./feed-limits.ts";
export { FeedMachine } from "./feed-machine.ts";
export type { FeedEffect, FeedEvent } from "./feed-protocol.ts";
export { createKvPublisher, type KvPublisher, type KvPublisherOptions } from "./kv-publisher.ts";
export { createZmqKvEventSource, type ZmqKvEventSourceOptions } from "./zmq-kv-event-source.ts";
