import type { KvEvent } from "@baton/domain";
import { hashHex } from "@baton/kit";
import fc from "fast-check";
import t from "tap";
import { type CacheSequence, PagedCache } from "../src/index.ts";

/** The same rules with arrays and maps: a block is an id, a hash is the text of the whole prefix. */
class NaiveCache {
  readonly size: number;
  free: number[];
  references = new Map<number, number>();
  hashed = new Map<number, string>();
  order: number[] = [];
  events: string[] = [];

  constructor(blocks: number, size: number) {
    this.size = size;
    this.free = Array.from({ length: blocks }, (_, index) => index + 1);
  }

  prefix(salt: string | null, tokens: readonly number[], blocks: number): string {
    return `${salt}:${tokens.slice(0, blocks * this.size).join(",")}`;
  }

  admit(salt: string | null, tokens: readonly number[]): number[] | null {
    const hits: number[] = [];
    while ((hits.length + 1) * this.size < tokens.length) {
      const wanted = this.prefix(salt, tokens, hits.length + 1);
      const block = this.order.find((candidate) => this.hashed.get(candidate) === wanted);
      if (block === undefined) break;
      hits.push(block);
    }
    const fresh = Math.ceil(tokens.length / this.size) - hits.length;
    if (this.free.filter((block) => !hits.includes(block)).length < fresh) return null;
    for (const block of hits) {
      this.references.set(block, (this.references.get(block) ?? 0) + 1);
      this.free = this.free.filter((other) => other !== block);
    }
    const blocks = [...hits];
    for (let count = 0; count < fresh; count++) blocks.push(this.take());
    this.lastHits = hits.length;
    return blocks;
  }

  lastHits = 0;

  take(): number {
    const block = this.free.shift()!;
    this.references.set(block, 1);
    const hash = this.hashed.get(block);
    if (hash !== undefined) {
      this.events.push(`removed ${hash}`);
      this.hashed.delete(block);
      this.order = this.order.filter((other) => other !== block);
    }
    return block;
  }

  announce(salt: string | null, tokens: readonly number[], blocks: number[], from: number): number {
    const end = Math.floor(tokens.length / this.size);
    if (end <= from) return from;
    const names: string[] = [];
    for (let index = from; index < end; index++) {
      const name = this.prefix(salt, tokens, index + 1);
      this.hashed.set(blocks[index]!, name);
      this.order.push(blocks[index]!);
      names.push(name);
    }
    this.events.push(`stored ${names.join(" ")}`);
    return end;
  }

  release(blocks: readonly number[]): void {
    for (const block of [...blocks].reverse()) {
      const left = this.references.get(block)! - 1;
      this.references.set(block, left);
      if (left > 0) continue;
      if (this.hashed.has(block)) this.free.push(block);
      else this.free.unshift(block);
    }
  }
}

/** Turns real events into the naive form and checks that hashes and prefixes match one to one. */
class Dictionary {
  readonly nameOf = new Map<string, string>();
  readonly hexOf = new Map<string, string>();

  learn(names: readonly string[], event: KvEvent & { kind: "stored" }): void {
    names.forEach((name, index) => {
      const hex = hashHex(event.engineHashes, index);
      if ((this.hexOf.get(name) ?? hex) !== hex) throw new Error(`two hashes for ${name}`);
      if ((this.nameOf.get(hex) ?? name) !== name) throw new Error(`two prefixes for ${hex}`);
      this.hexOf.set(name, hex);
      this.nameOf.set(hex, name);
    });
  }
}

function compareEvents(
  real: readonly KvEvent[],
  naive: readonly string[],
  dictionary: Dictionary,
): void {
  if (real.length !== naive.length) throw new Error(`${real.length} events, not ${naive.length}`);
  real.forEach((event, index) => {
    const [kind, ...names] = naive[index]!.split(" ");
    if (event.kind !== kind) throw new Error(`${event.kind}, not ${kind}`);
    if (event.kind === "stored") {
      if (event.engineHashes.length !== 2 * names.length) throw new Error("other block count");
      if (event.tokenIds.length !== names.length * event.blockSizeTokens) throw new Error("tokens");
      dictionary.learn(names, event);
      const first = names[0]!.slice(names[0]!.indexOf(":") + 1).split(",");
      const parents = first.length / event.blockSizeTokens - 1;
      if ((event.parentEngineHash === null) !== (parents === 0)) throw new Error("parent");
    }
    if (event.kind === "removed") {
      const name = dictionary.nameOf.get(hashHex(event.engineHashes, 0));
      if (name !== names[0]) throw new Error(`removed ${name}, not ${names[0]}`);
    }
  });
}

interface Live {
  readonly salt: string | null;
  readonly tokens: number[];
  readonly sequence: CacheSequence;
  readonly blocks: number[];
  announced: number;
}

t.test("any order of requests gives the blocks, hits and events of the naive cache", (t) => {
  const prompt = fc.record({
    salt: fc.constantFrom(null, null, "a"),
    family: fc.integer({ min: 0, max: 2 }),
    length: fc.integer({ min: 1, max: 14 }),
    fork: fc.integer({ min: 0, max: 14 }),
  });
  const step = fc.oneof(
    fc.record({ kind: fc.constant("admit" as const), prompt }),
    fc.record({ kind: fc.constant("append" as const), which: fc.nat() }),
    fc.record({ kind: fc.constant("release" as const), which: fc.nat() }),
  );
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 60 }),
      fc.integer({ min: 4, max: 12 }),
      (steps, usable) => {
        const size = 3;
        const cache = new PagedCache({
          usableBlocks: usable,
          blockSizeTokens: size,
          hashSeed: "s",
        });
        const naive = new NaiveCache(usable, size);
        const dictionary = new Dictionary();
        const live: Live[] = [];
        for (const action of steps) {
          const target =
            live.length === 0
              ? undefined
              : live[("which" in action ? action.which : 0) % live.length];
          if (action.kind === "admit") {
            const { salt, family, length, fork } = action.prompt;
            const tokens = Array.from(
              { length },
              (_, at) => (at < fork ? family : 10 + fork) * 100 + at,
            );
            const sequence = cache.open(Uint32Array.from(tokens), salt);
            const hitTokens = cache.admit(sequence);
            const blocks = naive.admit(salt, tokens);
            if ((hitTokens === null) !== (blocks === null)) throw new Error("room differs");
            if (blocks === null) continue;
            if (hitTokens !== naive.lastHits * size) throw new Error("hits differ");
            cache.fill(sequence, tokens.length);
            const announced = naive.announce(salt, tokens, blocks, naive.lastHits);
            live.push({ salt, tokens, sequence, blocks, announced });
          } else if (target !== undefined && action.kind === "append") {
            const { sequence, tokens, blocks } = target;
            const token = 5000 + tokens.length;
            const needs = tokens.length + 1 > blocks.length * size;
            const hasRoom = !needs || naive.free.length > 0;
            if (!hasRoom) continue;
            sequence.append(token);
            tokens.push(token);
            if (!cache.grow(sequence)) throw new Error("no room");
            if (needs) blocks.push(naive.take());
            cache.fill(sequence, sequence.length);
            target.announced = naive.announce(target.salt, tokens, blocks, target.announced);
          } else if (target !== undefined) {
            cache.release(target.sequence);
            naive.release(target.blocks);
            live.splice(live.indexOf(target), 1);
          }
          for (const { sequence, blocks } of live) {
            if (sequence.blocks.join() !== blocks.join()) throw new Error("other blocks");
          }
          if (cache.freeBlocks !== naive.free.length) throw new Error("free blocks differ");
          if (cache.hashedBlocks !== naive.hashed.size) throw new Error("hashed blocks differ");
          compareEvents(cache.takeEvents(), naive.events, dictionary);
          naive.events = [];
        }
      },
    ),
    { numRuns: 400 },
  );
  t.end();
});

function run(cache: PagedCache, promptIds: Uint32Array, salt: string | null = null): number {
  const sequence = cache.open(promptIds, salt);
  const hits = cache.admit(sequence)!;
  cache.fill(sequence, promptIds.length);
  cache.release(sequence);
  return hits;
}

function prompt(seed: number, length: number): Uint32Array {
  return Uint32Array.from({ length }, (_, at) => (seed * 7919 + at * 31) % 150_000);
}

// Cached tokens of a recorded vLLM 0.32.0 run (block 32, 2026-11-30), request by request.
t.test("cached tokens are those that vLLM reported for the same prompts", (t) => {
  const cache = new PagedCache({ usableBlocks: 63, blockSizeTokens: 32, hashSeed: "x" });
  const a = prompt(1, 200);
  const b = Uint32Array.from([...a.subarray(0, 128), ...prompt(2, 67)]);
  const c2 = prompt(3, 128);
  t.equal(run(cache, a), 0);
  t.equal(run(cache, b), 128);
  t.equal(run(cache, a), 192);
  t.equal(run(cache, c2), 0);
  cache.takeEvents();
  t.equal(run(cache, c2), 96, "of exactly n blocks, n - 1 are hit");
  const [again, ...none] = cache.takeEvents();
  t.equal(none.length, 0);
  t.ok(again?.kind === "stored" && again.tokenIds.length === 32 && again.parentEngineHash !== null);
  t.equal(run(cache, prompt(4, 27)), 0);
  t.equal(run(cache, a, "tenant-a"), 0);
  t.equal(run(cache, a, "tenant-a"), 192);
  t.equal(run(cache, a, "tenant-b"), 0);
  t.equal(run(cache, a), 192);
  cache.takeEvents();
  for (let filler = 0; filler < 8; filler++) run(cache, prompt(10 + filler, 321));
  const removed = cache.takeEvents().filter((event) => event.kind === "removed");
  const twice = removed.filter(
    (event) =>
      hashHex(event.engineHashes, 0) ===
      hashHex((again as KvEvent & { kind: "stored" }).engineHashes, 0),
  );
  t.equal(twice.length, 2, "the block that two ids hold is removed twice");
  t.equal(run(cache, a), 0);
  t.end();
});

t.test("the deepest block of a chain goes first, before the store that needs the space", (t) => {
  const cache = new PagedCache({ usableBlocks: 4, blockSizeTokens: 4, hashSeed: "x" });
  run(cache, prompt(1, 16));
  const stored = cache.takeEvents()[0] as KvEvent & { kind: "stored" };
  run(cache, prompt(2, 9));
  const events = cache.takeEvents();
  t.same(
    events.map((event) => event.kind),
    ["removed", "removed", "removed", "stored"],
  );
  const order = events
    .slice(0, 3)
    .map((event) => hashHex((event as typeof stored).engineHashes, 0));
  t.same(
    order,
    [3, 2, 1].map((index) => hashHex(stored.engineHashes, index)),
  );
  t.end();
});

t.test("a salt names block 0 only, and engines with other seeds share no hash", (t) => {
  const one = new PagedCache({ usableBlocks: 8, blockSizeTokens: 4, hashSeed: "1" });
  const two = new PagedCache({ usableBlocks: 8, blockSizeTokens: 4, hashSeed: "2" });
  const sequence = one.open(prompt(1, 7), "salt");
  one.admit(sequence);
  one.fill(sequence, 7);
  for (const token of [1, 2]) {
    sequence.append(token);
    one.grow(sequence);
    one.fill(sequence, sequence.length);
  }
  const [first, second] = one.takeEvents();
  t.ok(first?.kind === "stored" && first.cacheSalt === "salt");
  t.ok(second?.kind === "stored" && second.cacheSalt === null);
  run(two, prompt(1, 7), "salt");
  const other = two.takeEvents()[0];
  const hex = [first, other].map(
    (event) => event?.kind === "stored" && hashHex(event.engineHashes, 0),
  );
  t.match(hex, [/^[0-9a-f]{16}$/, /^[0-9a-f]{16}$/]);
  t.not(hex[0], hex[1]);
  t.end();
});

t.test(
  "the digest of a prompt does not depend on the block size, and any wrong block changes it",
  (t) => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 90 }),
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 1, max: 20 }),
        fc.nat(),
        (length, sizeA, sizeB, which) => {
          const ids = prompt(1, length);
          const digests = [sizeA, sizeB].map((blockSizeTokens) => {
            const cache = new PagedCache({ usableBlocks: 200, blockSizeTokens, hashSeed: "x" });
            const sequence = cache.open(ids, null);
            cache.admit(sequence);
            cache.fill(sequence, length);
            return { cache, sequence, digest: cache.promptDigest(sequence) };
          });
          const [one, two] = digests as [(typeof digests)[0], (typeof digests)[0]];
          if (one.digest.join() !== two.digest.join()) return false;
          const reader = new PagedCache({
            usableBlocks: 200,
            blockSizeTokens: sizeA,
            hashSeed: "y",
          });
          const pulled = reader.open(ids, null);
          reader.admit(pulled);
          const words = one.cache.readContents(one.sequence.blocks);
          words[which % words.length]! ^= 1;
          reader.receive(pulled, words);
          const spoilt = reader.promptDigest(pulled).join() !== one.digest.join();
          words[which % words.length]! ^= 1;
          const right = reader.open(ids, "other salt");
          reader.admit(right);
          reader.receive(right, words);
          return spoilt && reader.promptDigest(right).join() === one.digest.join();
        },
      ),
    );
    t.end();
  },
);
