import type { KvEvent } from "@baton/domain";
import { encodeKvBatch } from "@baton/kv-events";
import { createKvPublisher } from "@baton/kv-feed";
import type { Logger } from "@baton/ports";

export interface EventOutletOptions {
  readonly host: string;
  readonly port: number;
  readonly replayPort: number;
  readonly topic: string;
  readonly logger: Logger;
}

/** Publishes cache events as vLLM does, one message per step. */
export interface EventOutlet {
  /** `isLost`: the batch takes its number and can be replayed, and nobody gets it live. */
  publish(batch: {
    readonly events: readonly KvEvent[];
    readonly wallS: number;
    readonly isLost: boolean;
  }): void;
  /** As bound, e.g. `tcp://127.0.0.1:40001`. */
  readonly endpoint: string;
  readonly replayEndpoint: string;
  close(): Promise<void>;
}

/** Rejects when a port is taken. */
export async function openEventOutlet(options: EventOutletOptions): Promise<EventOutlet> {
  const replayEndpoint = `tcp://${options.host}:${options.replayPort}`;
  const publisher = await createKvPublisher({
    endpoint: `tcp://${options.host}:${options.port}`,
    replayEndpoint,
    topic: options.topic,
    logger: options.logger,
  });
  return {
    publish({ events, wallS, isLost }) {
      const payload = encodeKvBatch({ engineTimeS: wallS, dpRank: 0, events, form: "map" });
      publisher.publish(payload, { isLost });
    },
    endpoint: publisher.endpoint,
    replayEndpoint: publisher.replayEndpoint ?? replayEndpoint,
    close: () => publisher.close(),
  };
}
