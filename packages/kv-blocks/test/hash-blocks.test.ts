import { hashCount, hashHex } from "@baton/kit";
import {
  extendBlockHashes,
  hashBlocks,
  indexBlockSizeTokens,
  namespaceRoot,
} from "@baton/kv-blocks";
import fc from "fast-check";
import t from "tap";

const root = namespaceRoot({ model: "m", loraName: null, cacheSalt: null });
const tokens = fc.uint32Array({ maxLength: 200 });

t.test("a chain extended from any whole block equals the chain hashed at once", async (t) => {
  fc.assert(
    fc.property(tokens, fc.integer({ min: 1, max: 40 }), fc.nat(), (ids, size, cut) => {
      const whole = hashBlocks(ids, size, root);
      const blocks = hashCount(whole);
      const at = blocks === 0 ? 0 : cut % (blocks + 1);
      const parent = at === 0 ? root : whole.slice(2 * (at - 1), 2 * at);
      const tail = extendBlockHashes(parent, ids.slice(at * size), size);
      return (
        Buffer.compare(Buffer.from(tail.buffer), Buffer.from(whole.slice(2 * at).buffer)) === 0
      );
    }),
  );
  t.pass();
});

t.test("one changed token changes its block and every later one, and none before", async (t) => {
  fc.assert(
    fc.property(fc.uint32Array({ minLength: 64, maxLength: 64 }), fc.nat(63), (ids, at) => {
      const other = ids.slice();
      other[at] = (other[at]! + 1) >>> 0;
      const left = hashBlocks(ids, 16, root);
      const right = hashBlocks(other, 16, root);
      for (let block = 0; block < 4; block++) {
        const same = hashHex(left, block) === hashHex(right, block);
        if (same !== block < Math.floor(at / 16)) return false;
      }
      return true;
    }),
  );
  t.pass();
});

t.test("namespaces, salts, adapters and extras never share a block", async (t) => {
  const ids = Uint32Array.from({ length: 32 }, (_, at) => at);
  const roots = [
    { model: "m", loraName: null, cacheSalt: null },
    { model: "n", loraName: null, cacheSalt: null },
    { model: "m", loraName: "a", cacheSalt: null },
    { model: "m", loraName: null, cacheSalt: "a" },
    { model: "m", loraName: null, cacheSalt: "" },
  ].map(namespaceRoot);
  const seen = new Set(roots.map((each) => hashHex(hashBlocks(ids, 16, each), 0)));
  seen.add(hashHex(hashBlocks(ids, 16, roots[0]!, ["image-1@0", null]), 0));
  seen.add(hashHex(hashBlocks(ids, 16, roots[0]!, ["image-2@0", null]), 0));
  t.equal(seen.size, 7);
});

t.test("200,000 different blocks give 200,000 different hashes", async (t) => {
  const seen = new Set<string>();
  const ids = new Uint32Array(16);
  for (let n = 0; n < 200_000; n++) {
    ids[n % 16] = n;
    seen.add(hashHex(hashBlocks(ids, 16, root), 0));
  }
  t.equal(seen.size, 200_000);
});

t.test(
  "the values are pinned, since two versions of Baton compare them over the bus",
  async (t) => {
    const ids = Uint32Array.from({ length: 40 }, (_, at) => at);
    const hashes = hashBlocks(ids, 16, root);
    t.same(
      [hashCount(hashes), hashHex(hashes, 0), hashHex(hashes, 1)],
      [2, "a88c7b0c57d9a969", "835f835d1e523fa4"],
    );
  },
);

t.test(
  "an index block is the smallest multiple of the engine's block from 16 tokens on",
  async (t) => {
    t.same([1, 3, 8, 16, 32, 64, 256].map(indexBlockSizeTokens), [16, 18, 16, 16, 32, 64, 256]);
  },
);
