import type { KvEvent } from "@baton/domain";
import { encodeKvBatch } from "@baton/kv-events";

export interface EngineMessage {
  readonly sequence: bigint;
  readonly payload: Uint8Array;
}

/** One process life: counts its messages, keeps the last few. Its batches say `life * 1e6 + n`. */
export class FakeLife {
  readonly life: number;
  readonly start: bigint;
  readonly ring: EngineMessage[] = [];
  readonly #ringMax: number;
  published = 0;

  constructor(life: number, options: { start: bigint; ringMax: number }) {
    this.life = life;
    this.start = options.start;
    this.#ringMax = options.ringMax;
  }

  publish(events: readonly KvEvent[] = []): EngineMessage {
    const message = {
      sequence: this.start + BigInt(this.published),
      payload: encodeKvBatch({
        engineTimeS: this.life * 1e6 + this.published,
        dpRank: 0,
        events,
        form: "map",
      }),
    };
    this.published += 1;
    this.ring.push(message);
    if (this.ring.length > this.#ringMax) this.ring.shift();
    return message;
  }

  from(sequence: bigint): EngineMessage[] {
    return this.ring.filter((message) => message.sequence >= sequence);
  }
}
