import type { Pool } from "@baton/domain";
import type { fleet, MessageOf } from "@baton/protocol";

type FleetMessage = MessageOf<typeof fleet>;

interface Heard {
  readonly message: FleetMessage;
  readonly atMs: number;
}

/** A scheduler that was not heard for this long does not count as there. */
const silenceMsMax = 5_000;

/**
 * Which models there are and what their pools can do, from what schedulers publish. A model once heard
 * of stays known: its schedulers may be restarting, and a client that is told 404 gives up.
 */
export class ModelDirectory {
  readonly #pools = new Map<string, Partial<Record<Pool, Heard>>>();
  readonly #sinceS = new Map<string, number>();

  apply(message: FleetMessage, nowMs: number, wallMs: number): void {
    const pools = this.#pools.get(message.model) ?? {};
    pools[message.pool] = { message, atMs: nowMs };
    this.#pools.set(message.model, pools);
    if (!this.#sinceS.has(message.model)) {
      this.#sinceS.set(message.model, Math.floor(wallMs / 1_000));
    }
  }

  models(): {
    readonly id: string;
    readonly createdS: number;
    readonly maxModelTokens: number | null;
  }[] {
    return [...this.#pools].map(([id, pools]) => ({
      id,
      createdS: this.#sinceS.get(id)!,
      maxModelTokens: maxModelTokens(Object.values(pools)),
    }));
  }

  isKnown(model: string): boolean {
    return this.#pools.has(model);
  }

  /** Index block sizes to hash a prompt by. */
  indexBlockSizes(model: string): readonly number[] {
    return this.#pools.get(model)?.prefill?.message.indexBlockSizes ?? [];
  }

  /** Workers of any pool of the model that are up. */
  workersUp(model: string): FleetMessage["workers"] {
    const pools = Object.values(this.#pools.get(model) ?? {});
    return pools.flatMap(({ message }) => message.workers.filter((each) => each.state === "up"));
  }

  /** Why the model cannot be served now; empty when it can. */
  missing(model: string, nowMs: number): string[] {
    const pools = this.#pools.get(model) ?? {};
    return (["prefill", "decode"] as const).flatMap((pool) => {
      const heard = pools[pool];
      if (heard === undefined) return [`${model}: no ${pool}-scheduler was heard`];
      if (heard.message.isLeaving) return [`${model}: the ${pool}-scheduler is draining`];
      if (nowMs - heard.atMs > silenceMsMax) return [`${model}: the ${pool}-scheduler fell silent`];
      const isUp = heard.message.workers.some((each) => each.state === "up");
      return isUp ? [] : [`${model}: no ${pool} worker is up`];
    });
  }
}

function maxModelTokens(pools: readonly Heard[]): number | null {
  const limits = pools.flatMap(({ message }) =>
    message.maxModelLenTokens === null ? [] : [message.maxModelLenTokens],
  );
  return limits.length === 0 ? null : Math.min(...limits);
}
