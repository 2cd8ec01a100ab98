import type { Clock, KvEventSource, KvFeed, Logger, Timers } from "@baton/ports";
import { type KvFeedLimits, kvFeedLimitsDefault } from "./feed-limits.ts";
import { ReplaySlots } from "./replay-slots.ts";
import { ZmqFeed } from "./zmq-feed.ts";

export interface ZmqKvEventSourceOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly logger: Logger;
  readonly limits?: Partial<KvFeedLimits>;
  /** Replays at once over all feeds, so that a fleet's start does not drown the process. */
  readonly replaysMax?: number;
}

/**
 * KV event streams of engines over ZeroMQ: SUB for the live stream, a DEALER per replay. An
 * endpoint with a `*` is listened on (vLLM dials out when its endpoint has none). All times are the
 * limits'; `limits` overrides single ones. Unreachable engines are retried until closed; `open`
 * throws only on an endpoint that is no ZeroMQ address.
 */
export function createZmqKvEventSource(options: ZmqKvEventSourceOptions): KvEventSource {
  const { clock, timers, logger } = options;
  const limits = { ...kvFeedLimitsDefault, ...options.limits };
  const slots = new ReplaySlots(options.replaysMax ?? 8);
  const feeds = new Set<ZmqFeed>();
  return {
    open(feedOptions, sink): KvFeed {
      const feed = new ZmqFeed({ clock, timers, logger, limits, slots }, feedOptions, sink);
      feeds.add(feed);
      const close = (): void => {
        feed.close();
        void feed.closed().then(() => feeds.delete(feed));
      };
      try {
        feed.start();
      } catch (error) {
        close();
        throw error;
      }
      return { state: () => feed.state(), close };
    },
    async close(): Promise<void> {
      for (const feed of feeds) feed.close();
      await Promise.all([...feeds].map((feed) => feed.closed()));
      feeds.clear();
    },
  };
}
