import type { HashList } from "@baton/kit";
import { invariant } from "@baton/kit";
import { extendBlockHashes } from "@baton/kv-blocks";

/**
 * The tokens of one request and the blocks that hold their KV. Fields are PagedCache's to change;
 * readers only read.
 */
export class CacheSequence {
  readonly cacheSalt: string | null;
  readonly promptTokens: number;
  readonly #root: HashList;
  readonly #blockSizeTokens: number;
  #tokenIds: Uint32Array;
  #length: number;
  #hashes: Uint32Array;
  #hashed: number;
  /** Block ids, one per block size of tokens. Empty while the request holds none. */
  readonly blocks: number[] = [];
  /** Tokens with KV, counted from the first. */
  filledTokens = 0;
  /** Leading blocks that are found by hash: hits, and own ones that were announced. */
  hashedBlocks = 0;

  /** `root`: engine hash before the first block. O(tokens). */
  constructor(options: {
    readonly promptIds: Uint32Array;
    readonly cacheSalt: string | null;
    readonly blockSizeTokens: number;
    readonly root: HashList;
  }) {
    invariant(options.promptIds.length > 0, "a prompt has at least one token");
    this.cacheSalt = options.cacheSalt;
    this.promptTokens = options.promptIds.length;
    this.#root = options.root;
    this.#blockSizeTokens = options.blockSizeTokens;
    this.#tokenIds = options.promptIds;
    this.#length = options.promptIds.length;
    this.#hashes = extendBlockHashes(options.root, options.promptIds, options.blockSizeTokens);
    this.#hashed = this.#hashes.length / 2;
  }

  /** Prompt and generated tokens. */
  get length(): number {
    return this.#length;
  }

  get fullBlocks(): number {
    return Math.floor(this.#length / this.#blockSizeTokens);
  }

  /** Not to be kept over `append`. */
  get tokenIds(): Uint32Array {
    return this.#tokenIds;
  }

  append(tokenId: number): void {
    if (this.#length === this.#tokenIds.length) {
      const grown = new Uint32Array(this.#length + Math.max(64, this.#length >> 2));
      grown.set(this.#tokenIds.subarray(0, this.#length));
      this.#tokenIds = grown;
    }
    this.#tokenIds[this.#length++] = tokenId;
  }

  /** Engine hashes of blocks [from, to); all of them are full. */
  hashes(from: number, to: number): HashList {
    this.#hashUpTo(to);
    return this.#hashes.slice(2 * from, 2 * to);
  }

  hashLow(block: number): number {
    this.#hashUpTo(block + 1);
    return this.#hashes[2 * block]!;
  }

  hashHigh(block: number): number {
    this.#hashUpTo(block + 1);
    return this.#hashes[2 * block + 1]!;
  }

  #hashUpTo(blocks: number): void {
    if (this.#hashed >= blocks) return;
    invariant(blocks <= this.fullBlocks, "only full blocks have a hash");
    const parent = this.#hashed === 0 ? this.#root : this.#hashes.slice(-2);
    const tokens = this.#tokenIds.subarray(
      this.#hashed * this.#blockSizeTokens,
      blocks * this.#blockSizeTokens,
    );
    const more = extendBlockHashes(parent, tokens, this.#blockSizeTokens);
    const grown = new Uint32Array(this.#hashes.length + more.length);
    grown.set(this.#hashes);
    grown.set(more, this.#hashes.length);
    this.#hashes = grown;
    this.#hashed = blocks;
  }
}
