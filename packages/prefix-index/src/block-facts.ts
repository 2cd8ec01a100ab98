import type { KvEvent, Tier } from "@baton/domain";
import { tiers } from "@baton/domain";
import { type HashList, hashCount } from "@baton/kit";
import { extendBlockHashes, indexBlockSizeTokens, namespaceRoot } from "@baton/kv-blocks";
import { blockKeys } from "./block-keys.ts";

/** Copies of one block on one worker, per tier in the order of `tiers`. */
export type HeldCopies = [number, number, number];

/** An engine may announce a block once per copy; a count is a hint and stays small. */
const copiesMax = 8;

/**
 * Engine hashes of blocks that lie nowhere any more, kept per worker for announcements of outer tiers
 * that name a block by its engine hash alone.
 */
const ghostsMax = 65_536;

interface WorkerFacts {
  /** Engine hash → our chained hash of the same block. */
  readonly byEngineHash: Map<bigint, bigint>;
  /** Those of `byEngineHash` without residency, oldest first. */
  readonly ghosts: Set<bigint>;
  blockSizeTokens: number | null;
}

export interface FactsResult {
  /** Our hashes of the blocks that the event stored. */
  readonly stored: BigUint64Array;
  /** Why the event was not applied; null when it was. */
  readonly ignored: string | null;
}

const nothing = new BigUint64Array(0);

/**
 * Which blocks lie where, from KV events only. Keyed by our own hash of the event's tokens, since
 * engine hashes mean nothing beyond one process.
 */
export class BlockFacts {
  readonly #model: string;
  readonly #tierOf: (medium: string | null) => Tier | "unknown";
  readonly #workers = new Map<string, WorkerFacts>();
  readonly #holders = new Map<bigint, Map<string, HeldCopies>>();

  constructor(model: string, tierOf: (medium: string | null) => Tier | "unknown") {
    this.#model = model;
    this.#tierOf = tierOf;
  }

  get blockCount(): number {
    return this.#holders.size;
  }

  /** Engine hashes that are remembered, over all workers. */
  get engineHashCount(): number {
    let count = 0;
    for (const facts of this.#workers.values()) count += facts.byEngineHash.size;
    return count;
  }

  blockSizeTokens(worker: string): number | null {
    return this.#workers.get(worker)?.blockSizeTokens ?? null;
  }

  holders(key: bigint): ReadonlyMap<string, HeldCopies> | undefined {
    return this.#holders.get(key);
  }

  apply(worker: string, event: KvEvent): FactsResult {
    switch (event.kind) {
      case "stored":
        return this.#store(worker, event);
      case "removed":
        return this.#remove(worker, event);
      case "cleared":
        this.drop(worker);
        return { stored: nothing, ignored: null };
    }
  }

  /** Forgets all of a worker. O(blocks of the index). */
  drop(worker: string): void {
    this.#workers.delete(worker);
    for (const [key, holders] of this.#holders) {
      if (holders.delete(worker) && holders.size === 0) this.#holders.delete(key);
    }
  }

  #store(worker: string, event: Extract<KvEvent, { kind: "stored" }>): FactsResult {
    const facts = this.#factsOf(worker);
    const tier = this.#tierOf(event.medium);
    if (tier === "unknown") return { stored: nothing, ignored: `unknown medium ${event.medium}` };
    if (!isFullAttention(event.specKind)) return { stored: nothing, ignored: "not full attention" };
    const engineKeys = blockKeys(event.engineHashes);
    if (event.tokenIds.length === 0) return this.#storeKnown(facts, worker, engineKeys, tier);
    if (indexBlockSizeTokens(event.blockSizeTokens) !== event.blockSizeTokens) {
      return { stored: nothing, ignored: `block size ${event.blockSizeTokens} is under 16 tokens` };
    }
    const parent = this.#parentOf(facts, event);
    if (parent === null) return { stored: nothing, ignored: "unknown parent" };
    const hashes = extendBlockHashes(
      parent,
      event.tokenIds,
      event.blockSizeTokens,
      event.extraKeys,
    );
    if (hashCount(hashes) !== engineKeys.length) {
      return { stored: nothing, ignored: "tokens and hashes do not match" };
    }
    facts.blockSizeTokens = event.blockSizeTokens;
    const stored = blockKeys(hashes);
    for (let at = 0; at < stored.length; at++) {
      facts.byEngineHash.set(engineKeys[at]!, stored[at]!);
      facts.ghosts.delete(engineKeys[at]!);
      this.#add(worker, stored[at]!, tier);
    }
    return { stored, ignored: null };
  }

  /** A placeholder without tokens: usable when this worker announced the same hash before. */
  #storeKnown(
    facts: WorkerFacts,
    worker: string,
    engineKeys: BigUint64Array,
    tier: Tier,
  ): FactsResult {
    const stored: bigint[] = [];
    for (const engineKey of engineKeys) {
      const key = facts.byEngineHash.get(engineKey);
      if (key === undefined) continue;
      this.#add(worker, key, tier);
      facts.ghosts.delete(engineKey);
      stored.push(key);
    }
    const ignored = stored.length === engineKeys.length ? null : "placeholder of an unknown hash";
    return { stored: BigUint64Array.from(stored), ignored };
  }

  #remove(worker: string, event: Extract<KvEvent, { kind: "removed" }>): FactsResult {
    const facts = this.#factsOf(worker);
    const tier = this.#tierOf(event.medium);
    let unknownHashes = 0;
    for (const engineKey of blockKeys(event.engineHashes)) {
      const key = facts.byEngineHash.get(engineKey);
      if (key === undefined) unknownHashes += 1;
      else if (this.#subtract(worker, key, tier)) facts.ghosts.add(engineKey);
    }
    for (const oldest of facts.ghosts) {
      if (facts.ghosts.size <= ghostsMax) break;
      facts.ghosts.delete(oldest);
      facts.byEngineHash.delete(oldest);
    }
    return {
      stored: nothing,
      ignored: unknownHashes > 0 ? "removal of an unknown hash" : null,
    };
  }

  #parentOf(facts: WorkerFacts, event: Extract<KvEvent, { kind: "stored" }>): HashList | null {
    if (event.parentEngineHash === null) {
      const { loraName, cacheSalt } = event;
      return namespaceRoot({ model: this.#model, loraName, cacheSalt });
    }
    const parent = facts.byEngineHash.get(blockKeys(event.parentEngineHash)[0]!);
    if (parent === undefined) return null;
    return new Uint32Array(BigUint64Array.of(parent).buffer);
  }

  #add(worker: string, key: bigint, tier: Tier): void {
    const holders = this.#holders.get(key) ?? new Map<string, HeldCopies>();
    const copies = holders.get(worker) ?? [0, 0, 0];
    this.#holders.set(key, holders.set(worker, copies));
    const at = tiers.indexOf(tier);
    copies[at] = Math.min(copies[at]! + 1, copiesMax);
  }

  /**
   * A removal from an unknown medium clears the block: believing in too little costs less. True when
   * the block now lies nowhere on the worker.
   */
  #subtract(worker: string, key: bigint, tier: Tier | "unknown"): boolean {
    const holders = this.#holders.get(key);
    const copies = holders?.get(worker);
    if (holders === undefined || copies === undefined) return true;
    if (tier === "unknown") copies.fill(0);
    else {
      const at = tiers.indexOf(tier);
      copies[at] = Math.max(0, copies[at]! - 1);
    }
    if (copies.some((count) => count > 0)) return false;
    holders.delete(worker);
    if (holders.size === 0) this.#holders.delete(key);
    return true;
  }

  #factsOf(worker: string): WorkerFacts {
    let facts = this.#workers.get(worker);
    if (facts === undefined) {
      facts = { byEngineHash: new Map(), ghosts: new Set(), blockSizeTokens: null };
      this.#workers.set(worker, facts);
    }
    return facts;
  }
}

/** Groups that hold only a part of a sequence say nothing about a prefix. */
function isFullAttention(specKind: string | null): boolean {
  return (
    specKind === null ||
    specKind === "full_attention" ||
    specKind === "mla_attention" ||
    specKind === "sink_full_attention"
  );
}
