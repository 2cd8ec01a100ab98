import type { KvEvent, Tier } from "@baton/domain";
import { tiers } from "@baton/domain";
import { hashFromBigInt, hashHex } from "@baton/kit";
import { hashBlocks, namespaceRoot } from "@baton/kv-blocks";
import { PrefixIndex, weightedTokens } from "@baton/prefix-index";
import fc from "fast-check";
import t from "tap";

const model = "m";
const size = 16;
const root = namespaceRoot({ model, loraName: null, cacheSalt: null });
const tierOf = (medium: string | null): Tier | "unknown" =>
  tiers.includes(medium as Tier) ? (medium as Tier) : "unknown";

/** A small tree of prompts: path digits choose each block's content. */
type Path = readonly number[];
const path = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 5 });
const tokensOf = (blocks: Path) =>
  Uint32Array.from(blocks.flatMap((digit) => Array.from({ length: size }, () => digit + 1)));
const hashesOf = (blocks: Path) => hashBlocks(tokensOf(blocks), size, root);
/** An engine's own hash: differs per worker, depends on the whole path. */
const engineHash = (worker: string, blocks: Path) =>
  hashFromBigInt(BigInt(worker.charCodeAt(0)) * 1_000_000n + BigInt(`1${blocks.join("")}`));

type Step =
  | { kind: "store" | "remove"; worker: string; path: Path; tier: Tier }
  | { kind: "clear" | "drop"; worker: string };

const worker = fc.constantFrom("a", "b", "c");
const tier = fc.constantFrom(...tiers);
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("store" as const), worker, path, tier }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("remove" as const), worker, path, tier }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom("clear" as const, "drop" as const), worker }),
  },
);

function storeEvent(name: string, blocks: Path, medium: Tier): KvEvent {
  return {
    kind: "stored",
    engineHashes: engineHash(name, blocks),
    parentEngineHash: blocks.length === 1 ? null : engineHash(name, blocks.slice(0, -1)),
    tokenIds: tokensOf(blocks.slice(-1)),
    blockSizeTokens: size,
    medium,
    loraName: null,
    cacheSalt: null,
    extraKeys: null,
    groupIndex: 0,
    specKind: "full_attention",
  };
}

/** The naive model: per worker, which paths are known, and copies per tier. */
class Naive {
  readonly known = new Map<string, Set<string>>();
  readonly copies = new Map<string, number>();

  apply(step: Step): void {
    if (!("path" in step)) {
      this.known.delete(step.worker);
      for (const key of this.copies.keys())
        if (key.startsWith(step.worker)) this.copies.delete(key);
      return;
    }
    const known = this.known.get(step.worker) ?? new Set<string>();
    this.known.set(step.worker, known);
    const name = step.path.join("");
    const key = `${step.worker}/${name}/${step.tier}`;
    if (step.kind === "store") {
      if (step.path.length > 1 && !known.has(step.path.slice(0, -1).join(""))) return;
      known.add(name);
      this.copies.set(key, Math.min((this.copies.get(key) ?? 0) + 1, 8));
    } else if (known.has(name)) {
      this.copies.set(key, Math.max((this.copies.get(key) ?? 0) - 1, 0));
    }
  }

  overlap(name: string, blocks: Path): { counts: Record<Tier, number>; gpuPrefix: number } {
    const counts = { gpu: 0, host: 0, disk: 0 };
    let gpuPrefix = 0;
    let gpuOnly = true;
    for (let length = 1; length <= blocks.length; length++) {
      const prefix = blocks.slice(0, length).join("");
      const best = tiers.find((each) => (this.copies.get(`${name}/${prefix}/${each}`) ?? 0) > 0);
      if (best === undefined) break;
      counts[best] += 1;
      gpuOnly &&= best === "gpu";
      if (gpuOnly) gpuPrefix += 1;
    }
    return { counts, gpuPrefix };
  }
}

t.test("overlaps equal those of a naive model after any history of events", async (t) => {
  fc.assert(
    fc.property(
      fc.array(step, { maxLength: 60 }),
      fc.array(path, { maxLength: 8 }),
      (steps, asked) => {
        const index = new PrefixIndex({ model, tierOf });
        const naive = new Naive();
        for (const each of steps) {
          naive.apply(each);
          if (each.kind === "store")
            index.apply(each.worker, storeEvent(each.worker, each.path, each.tier));
          else if (each.kind === "remove") {
            index.apply(each.worker, {
              kind: "removed",
              engineHashes: engineHash(each.worker, each.path),
              medium: each.tier,
              groupIndex: 0,
            });
          } else if (each.kind === "clear") index.apply(each.worker, { kind: "cleared" });
          else index.dropWorker(each.worker);
        }
        for (const prompt of asked) {
          const overlaps = index.overlaps(hashesOf(prompt), 0);
          for (const name of ["a", "b", "c"]) {
            const expected = naive.overlap(name, prompt);
            const found = overlaps.get(name);
            const counts = found?.cachedBlocks ?? { gpu: 0, host: 0, disk: 0 };
            if (JSON.stringify(counts) !== JSON.stringify(expected.counts)) return false;
            if ((found?.gpuPrefixBlocks ?? 0) !== expected.gpuPrefix) return false;
          }
        }
        return true;
      },
    ),
    { numRuns: 1_000 },
  );
  t.pass();
});

t.test("a prediction promises blocks until it is confirmed, forgotten or expired", async (t) => {
  const index = new PrefixIndex({ model, tierOf });
  const prompt = [0, 1, 2];
  const pending = (nowMs: number) => {
    const overlap = index.overlaps(hashesOf(prompt), nowMs).get("a");
    return [overlap?.cachedBlocks.gpu ?? 0, overlap?.pendingBlocks ?? 0];
  };
  index.assume({ attempt: "r1", worker: "a", hashes: hashesOf(prompt), etaMs: 50, expiresMs: 100 });
  t.same(pending(0), [0, 3], "all three blocks are promised");
  index.apply("a", storeEvent("a", [0], "gpu"));
  t.same(pending(0), [1, 2], "an event makes a promise a fact, block by block");
  t.same(pending(100), [1, 0], "past its TTL a promise counts for nothing");
  index.forget("r1");
  t.same(pending(0), [1, 0], "a forgotten promise is gone, the fact stays");
});

t.test("forgetting one of two siblings keeps what the other still promises", async (t) => {
  const index = new PrefixIndex({ model, tierOf });
  for (const [attempt, prompt] of [
    ["r1", [0, 1]],
    ["r2", [0, 2]],
  ] as const) {
    index.assume({ attempt, worker: "a", hashes: hashesOf(prompt), etaMs: 50, expiresMs: 100 });
  }
  index.forget("r1");
  t.equal(index.overlaps(hashesOf([0, 2]), 0).get("a")?.pendingBlocks, 2);
  t.equal(index.overlaps(hashesOf([0, 1]), 0).get("a")?.pendingBlocks, 1);
  index.expire(100);
  t.equal(index.overlaps(hashesOf([0, 2]), 0).size, 0);
  t.equal(index.stats().predictedAttempts, 0);
});

t.test("adapters, salts and images never share blocks with the base", async (t) => {
  const index = new PrefixIndex({ model, tierOf });
  const base = storeEvent("a", [0], "gpu") as Extract<KvEvent, { kind: "stored" }>;
  index.apply("a", { ...base, loraName: "adapter" });
  index.apply("b", { ...base, cacheSalt: "s" });
  index.apply("c", { ...base, extraKeys: ["image-1@0"] });
  t.equal(index.overlaps(hashesOf([0]), 0).size, 0);
  const salted = hashBlocks(
    tokensOf([0]),
    size,
    namespaceRoot({ model, loraName: null, cacheSalt: "s" }),
  );
  t.equal(index.overlaps(salted, 0).get("b")?.cachedBlocks.gpu, 1);
});

t.test("what cannot be indexed is ignored with a reason, and believed nowhere", async (t) => {
  const index = new PrefixIndex({ model, tierOf });
  const base = storeEvent("a", [0], "gpu") as Extract<KvEvent, { kind: "stored" }>;
  t.match(index.apply("a", { ...base, medium: "FLASH" }), { ignored: /unknown medium/ });
  t.match(index.apply("a", { ...base, specKind: "sliding_window" }), { ignored: /full attention/ });
  t.match(index.apply("a", storeEvent("a", [0, 1], "gpu")), { ignored: /unknown parent/ });
  t.match(index.apply("a", { ...base, blockSizeTokens: 8 }), { ignored: /under 16/ });
  t.equal(index.stats().blocks, 0);
});

t.test("a host placeholder without tokens resolves through the GPU announcement", async (t) => {
  const index = new PrefixIndex({ model, tierOf });
  const gpu = storeEvent("a", [0], "gpu") as Extract<KvEvent, { kind: "stored" }>;
  const host: KvEvent = { ...gpu, medium: "host", tokenIds: new Uint32Array(), blockSizeTokens: 0 };
  t.match(index.apply("a", host), { ignored: /placeholder/ });
  index.apply("a", gpu);
  index.apply("a", host);
  index.apply("a", {
    kind: "removed",
    engineHashes: gpu.engineHashes,
    medium: "gpu",
    groupIndex: 0,
  });
  t.same(index.overlaps(hashesOf([0]), 0).get("a")?.cachedBlocks, { gpu: 0, host: 1, disk: 0 });
});

t.test("a thousand host blocks count as themselves and weigh three quarters", async (t) => {
  const tokens = { gpu: 0, host: 16_000, disk: 0 };
  t.equal(weightedTokens(tokens, { gpu: 1, host: 0.75, disk: 0.25 }), 12_000);
  t.equal(tokens.host, 16_000);
});

t.test("hashes of one path agree between a request and its events", async (t) => {
  t.equal(hashHex(hashesOf([0, 1]), 0), hashHex(hashesOf([0]), 0));
});

t.test("stored and removed blocks leave a bounded memory behind", async (t) => {
  const index = new PrefixIndex({ model, tierOf });
  const base = storeEvent("a", [0], "gpu") as Extract<KvEvent, { kind: "stored" }>;
  for (let n = 1; n <= 100_000; n++) {
    const engineHashes = hashFromBigInt(BigInt(n));
    const tokenIds = Uint32Array.from({ length: size }, () => n);
    index.apply("a", { ...base, engineHashes, tokenIds });
    index.apply("a", { kind: "removed", engineHashes, medium: "gpu", groupIndex: 0 });
  }
  t.match(index.stats(), { blocks: 0, engineHashes: 65_536 });
  const last = hashFromBigInt(100_000n);
  const host: KvEvent = {
    ...base,
    engineHashes: last,
    medium: "host",
    tokenIds: new Uint32Array(),
    blockSizeTokens: 0,
  };
  t.match(
    index.apply("a", host),
    { storedBlocks: 1, ignored: null },
    "a late placeholder still resolves",
  );
});
