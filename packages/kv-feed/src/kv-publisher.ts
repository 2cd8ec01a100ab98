import {
  liveFrames,
  parseReplayRequest,
  type ReplayForm,
  replayEndFrames,
  replayFrames,
} from "@baton/kv-events";
import type { Logger } from "@baton/ports";
import { Publisher, Router } from "zeromq";
import { received } from "./received.ts";
import { Turns } from "./turns.ts";

export interface KvPublisherOptions {
  /** Where to listen, e.g. `tcp://127.0.0.1:0`; port 0 takes a free one. */
  readonly endpoint: string;
  /** Null for an engine without replay. */
  readonly replayEndpoint: string | null;
  readonly topic: string;
  readonly logger: Logger;
  /** Batches kept for replay. Default 10,000, as vLLM. */
  readonly ringBatches?: number;
  /** Default `topic`. */
  readonly replayForm?: ReplayForm;
  /** Of the first batch. Default 0; TensorRT-LLM starts at its clock in nanoseconds. */
  readonly firstSequence?: bigint;
}

export interface KvPublisher {
  /** As bound, with the port taken. */
  readonly endpoint: string;
  readonly replayEndpoint: string | null;
  /**
   * Keeps one batch (`encodeKvBatch`) for replay and sends it to who is subscribed; `isLost` leaves
   * the sending out, as a full queue does. Returns its sequence. Never waits and never fails.
   */
  publish(payload: Uint8Array, options?: { readonly isLost?: boolean }): bigint;
  close(): Promise<void>;
}

/**
 * Engine's side of a KV event stream: PUB and replay ROUTER as vLLM has them. Slow subscribers lose
 * messages at `sendQueueMessages`, a replay is never cut. Malformed requests are logged and not
 * answered. Fails with the error of ZeroMQ when an endpoint cannot be bound.
 */
export async function createKvPublisher(options: KvPublisherOptions): Promise<KvPublisher> {
  const publisher = new ZmqKvPublisher(options);
  await publisher.start();
  return publisher;
}

const sendQueueMessages = 100_000;

class ZmqKvPublisher implements KvPublisher {
  endpoint = "";
  replayEndpoint: string | null = null;
  readonly #options: KvPublisherOptions;
  readonly #publisher: Publisher;
  readonly #router: Router;
  readonly #ringMax: number;
  readonly #ring: { readonly sequence: bigint; readonly payload: Uint8Array }[] = [];
  #ringStart = 0;
  #next: bigint;
  /** PUB takes one send at a time. */
  #sending: Promise<void> = Promise.resolve();
  #serving: Promise<void> = Promise.resolve();

  constructor(options: KvPublisherOptions) {
    this.#options = options;
    this.#ringMax = options.ringBatches ?? 10_000;
    this.#next = options.firstSequence ?? 0n;
    this.#publisher = new Publisher({ linger: 0, sendHighWaterMark: sendQueueMessages });
    this.#router = new Router({ linger: 0, sendHighWaterMark: this.#ringMax + 1 });
  }

  async start(): Promise<void> {
    try {
      await this.#publisher.bind(this.#options.endpoint);
      this.endpoint = this.#publisher.lastEndpoint!;
      if (this.#options.replayEndpoint === null) return;
      await this.#router.bind(this.#options.replayEndpoint);
      this.replayEndpoint = this.#router.lastEndpoint;
      this.#serving = this.#serveReplays();
    } catch (error) {
      await this.close();
      throw error;
    }
  }

  publish(payload: Uint8Array, options: { readonly isLost?: boolean } = {}): bigint {
    const sequence = this.#next;
    this.#next += 1n;
    this.#keep({ sequence, payload });
    if (options.isLost !== true) {
      const frames = liveFrames(this.#options.topic, sequence, payload);
      this.#sending = this.#sending.then(() => this.#send(frames));
    }
    return sequence;
  }

  async close(): Promise<void> {
    await this.#sending;
    this.#publisher.close();
    this.#router.close();
    await this.#serving;
  }

  #keep(message: { readonly sequence: bigint; readonly payload: Uint8Array }): void {
    if (this.#ring.length < this.#ringMax) this.#ring.push(message);
    else {
      this.#ring[this.#ringStart] = message;
      this.#ringStart = (this.#ringStart + 1) % this.#ringMax;
    }
  }

  async #send(frames: readonly Uint8Array[]): Promise<void> {
    try {
      if (!this.#publisher.closed) await this.#publisher.send([...frames]);
    } catch (error) {
      if (!this.#publisher.closed) throw error;
    }
  }

  async #serveReplays(): Promise<void> {
    for await (const frames of received(this.#router)) {
      const request = parseReplayRequest(frames);
      if (request !== null) await this.#replay(request.identity, request.from);
      else this.#options.logger.warn({ frames: frames.length }, "replay request is malformed");
    }
  }

  async #replay(identity: Uint8Array, from: bigint): Promise<void> {
    const form = this.#options.replayForm ?? "topic";
    const topic = this.#options.topic;
    const turns = new Turns();
    // What is published meanwhile is on the live stream and not in this answer.
    const ring = [...this.#ring.slice(this.#ringStart), ...this.#ring.slice(0, this.#ringStart)];
    try {
      for (const { sequence, payload } of ring) {
        if (sequence < from) continue;
        await this.#router.send([identity, ...replayFrames(form, topic, sequence, payload)]);
        await turns.next();
      }
      await this.#router.send([identity, ...replayEndFrames(form)]);
    } catch (error) {
      if (!this.#router.closed) throw error;
    }
  }
}
