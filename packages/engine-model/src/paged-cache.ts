import type { KvEvent } from "@baton/domain";
import { type HashList, invariant } from "@baton/kit";
import { namespaceRoot } from "@baton/kv-blocks";
import { BlockContents } from "./block-contents.ts";
import { BlockList } from "./block-list.ts";
import { CacheSequence } from "./cache-sequence.ts";
import { HashTable } from "./hash-table.ts";

export interface PagedCacheOptions {
  /** Blocks that requests can use; one more, the null block with id 0, is never handed out. */
  readonly usableBlocks: number;
  readonly blockSizeTokens: number;
  /** Makes the engine's block hashes; two engines with different seeds share none. */
  readonly hashSeed: string;
}

/** What vLLM names the only tier and group of an ordinary engine in its events. */
const medium = "GPU";
const groupIndex = 0;
const specKind = "full_attention";

/**
 * vLLM's paged KV cache with prefix reuse, in blocks:
 * - only full blocks are found by hash; the block of the last prompt token is computed anew even
 *   when all of the prompt is cached, and announced again, so two blocks may carry one hash;
 * - a freed block with a hash goes to the end of the free list, deepest of its chain first, one
 *   without a hash to the front; the front is handed out next, and its hash is lost (one `removed`
 *   event each) before the `stored` event that needed the space;
 * - nothing is announced on a hit.
 * Memory: about 45 bytes a block. No call costs more than its own blocks and tokens.
 */
export class PagedCache {
  readonly blockSizeTokens: number;
  readonly usableBlocks: number;
  readonly #hashSeed: string;
  readonly #references: Int32Array;
  readonly #free: BlockList;
  readonly #table: HashTable;
  readonly #contents: BlockContents;
  #events: KvEvent[] = [];

  constructor(options: PagedCacheOptions) {
    invariant(options.usableBlocks > 0, "a cache has at least one block");
    this.blockSizeTokens = options.blockSizeTokens;
    this.usableBlocks = options.usableBlocks;
    this.#hashSeed = options.hashSeed;
    const blocks = options.usableBlocks + 1;
    this.#references = new Int32Array(blocks);
    this.#free = new BlockList(blocks);
    this.#table = new HashTable(blocks);
    this.#contents = new BlockContents(blocks);
  }

  get usedBlocks(): number {
    return this.usableBlocks - this.#free.size;
  }

  get freeBlocks(): number {
    return this.#free.size;
  }

  /** Blocks that a prompt could hit, in use or free. */
  get hashedBlocks(): number {
    return this.#table.size;
  }

  /** A request's tokens, still without blocks. O(tokens). */
  open(promptIds: Uint32Array, cacheSalt: string | null): CacheSequence {
    const root: HashList = namespaceRoot({ model: this.#hashSeed, loraName: null, cacheSalt });
    return new CacheSequence({
      promptIds,
      cacheSalt,
      blockSizeTokens: this.blockSizeTokens,
      root,
    });
  }

  /**
   * Gives `sequence` its cached prefix and fresh blocks for the rest of its tokens. Returns the
   * tokens hit, or null and changes nothing when there is no room.
   */
  admit(sequence: CacheSequence): number | null {
    invariant(sequence.blocks.length === 0, "admitted once until released");
    const hits = this.#match(sequence);
    const fresh = Math.ceil(sequence.length / this.blockSizeTokens) - hits.length;
    const freeHits = hits.filter((block) => this.#references[block] === 0).length;
    if (this.#free.size - freeHits < fresh) return null;
    for (const block of hits) {
      if (this.#references[block]!++ === 0) this.#free.remove(block);
      sequence.blocks.push(block);
    }
    for (let count = 0; count < fresh; count++) sequence.blocks.push(this.#take());
    sequence.hashedBlocks = hits.length;
    sequence.filledTokens = hits.length * this.blockSizeTokens;
    return sequence.filledTokens;
  }

  /** Gives an appended token's KV a block if it needs a new one. False when none is free. */
  grow(sequence: CacheSequence): boolean {
    if (sequence.length <= sequence.blocks.length * this.blockSizeTokens) return true;
    if (this.#free.size === 0) return false;
    sequence.blocks.push(this.#take());
    return true;
  }

  /** The KV of all tokens before `toToken` gets computed. Full blocks are announced. */
  fill(sequence: CacheSequence, toToken: number): void {
    const size = this.blockSizeTokens;
    while (sequence.filledTokens < toToken) {
      const index = Math.floor(sequence.filledTokens / size);
      const block = sequence.blocks[index]!;
      const end = Math.min(toToken, (index + 1) * size);
      if (sequence.filledTokens === index * size) {
        this.#contents.begin(block, index === 0 ? 0 : sequence.blocks[index - 1]!);
      }
      this.#contents.write(block, sequence.tokenIds, sequence.filledTokens, end);
      sequence.filledTokens = end;
    }
    this.#announce(sequence);
  }

  /** Contents from another engine for the blocks behind the hits; then all tokens have their KV. */
  receive(sequence: CacheSequence, words: Uint32Array): void {
    const first = sequence.hashedBlocks;
    for (let index = first; index < sequence.blocks.length; index++) {
      this.#contents.copyIn(sequence.blocks[index]!, words, index - first);
    }
    sequence.filledTokens = sequence.length;
    this.#announce(sequence);
  }

  /** Takes the blocks from the sequence without freeing them; `freeBlockIds` does that later. */
  detach(sequence: CacheSequence): readonly number[] {
    const blocks = sequence.blocks.splice(0);
    sequence.filledTokens = 0;
    sequence.hashedBlocks = 0;
    return blocks;
  }

  release(sequence: CacheSequence): void {
    this.freeBlockIds(this.detach(sequence));
  }

  freeBlockIds(blocks: readonly number[]): void {
    for (let index = blocks.length - 1; index >= 0; index--) {
      const block = blocks[index]!;
      invariant(this.#references[block]! > 0, "a block is freed once per holder");
      if (--this.#references[block]! > 0) continue;
      if (this.#table.has(block)) this.#free.append(block);
      else this.#free.prepend(block);
    }
  }

  /** What the prompt's blocks hold, as one digest (two words); see BlockContents. */
  promptDigest(sequence: CacheSequence): Uint32Array {
    const count = Math.ceil(sequence.promptTokens / this.blockSizeTokens);
    return this.#contents.digest(sequence.blocks.slice(0, count));
  }

  /** Contents of any blocks by id, as a remote reader gets them. Ids are 0 … usableBlocks. */
  readContents(blocks: readonly number[]): Uint32Array {
    return this.#contents.read(blocks);
  }

  /** Forgets all hashes. `announce` false: without the event that a subscriber relies on. */
  clear(announce: boolean): void {
    this.#table.clear();
    if (announce) this.#events.push({ kind: "cleared" });
  }

  /** Events since the last call, in order. */
  takeEvents(): readonly KvEvent[] {
    const events = this.#events;
    if (events.length > 0) this.#events = [];
    return events;
  }

  /** Cached prefix in whole blocks, at least one token short of the whole sequence. */
  #match(sequence: CacheSequence): number[] {
    const most = Math.floor((sequence.length - 1) / this.blockSizeTokens);
    const hits: number[] = [];
    while (hits.length < most) {
      const index = hits.length;
      const block = this.#table.find(sequence.hashLow(index), sequence.hashHigh(index));
      if (block === 0) break;
      hits.push(block);
    }
    return hits;
  }

  #take(): number {
    const block = this.#free.first();
    this.#free.remove(block);
    this.#references[block] = 1;
    if (this.#table.has(block)) {
      const engineHashes = this.#table.hashOf(block);
      this.#table.remove(block);
      this.#events.push({ kind: "removed", engineHashes, medium, groupIndex });
    }
    return block;
  }

  #announce(sequence: CacheSequence): void {
    const first = sequence.hashedBlocks;
    const end = Math.floor(sequence.filledTokens / this.blockSizeTokens);
    if (end <= first) return;
    const engineHashes = sequence.hashes(first, end);
    for (let index = first; index < end; index++) {
      const at = 2 * (index - first);
      this.#table.add(sequence.blocks[index]!, engineHashes[at]!, engineHashes[at + 1]!);
    }
    sequence.hashedBlocks = end;
    this.#events.push({
      kind: "stored",
      engineHashes,
      parentEngineHash: first === 0 ? null : sequence.hashes(first - 1, first),
      tokenIds: sequence.tokenIds.slice(first * this.blockSizeTokens, end * this.blockSizeTokens),
      blockSizeTokens: this.blockSizeTokens,
      medium,
      loraName: null,
      cacheSalt: first === 0 ? sequence.cacheSalt : null,
      extraKeys: null,
      groupIndex,
      specKind,
    });
  }
}
