import { type KvEvent, type Tier, tierWeightsFixed } from "@baton/domain";
import { noSignals, type Probe, type WorkerConfig } from "@baton/fleet";
import { hashFromBigInt, known } from "@baton/kit";
import { hashBlocks, namespaceRoot } from "@baton/kv-blocks";
import { engineProfiles, profileDefault } from "@baton/perf-model";
import { type PlaceRequest, PrefillPool } from "@baton/placement";
import fc from "fast-check";
import t from "tap";

const model = "m";
const size = 16;
const root = namespaceRoot({ model, loraName: null, cacheSalt: null });
const tierOf = (medium: string | null): Tier | "unknown" => (medium === "GPU" ? "gpu" : "unknown");

function answered(startS = 1): Probe {
  const signals = {
    ...noSignals,
    processStartS: known(startS, 0),
    blockSizeTokens: known(size, 0),
  };
  return { kind: "answered", models: [model], maxModelLenTokens: null, version: null, signals };
}

function newPool(
  count: number,
  over: { policy?: "cost" | "round-robin"; waitMsMax?: number } = {},
): PrefillPool {
  const workers: WorkerConfig[] = Array.from({ length: count }, (_, at) => ({
    workerId: `p${at}`,
    url: `http://p${at}`,
    role: "prefill",
    dialect: "vllm",
    connector: "nixl-pull",
  }));
  const pool = new PrefillPool({
    model,
    workers,
    policy: "cost",
    coefficients: engineProfiles[profileDefault]!.prefill,
    tierWeights: tierWeightsFixed,
    waitMsMax: 1e9,
    tierOf,
    ...over,
  });
  for (const { workerId } of workers) pool.applyProbe(workerId, answered());
  return pool;
}

/** A prompt of `tokens` tokens whose blocks from `sharedBlocks` on belong to `id` alone. */
function prompt(id: number, tokens: number, sharedBlocks: number): PlaceRequest {
  const ids = Uint32Array.from({ length: tokens }, (_, at) =>
    at < sharedBlocks * size ? at + 1 : 1_000_000 + id * 10_000 + at,
  );
  return {
    requestId: `r${id}`,
    attempt: 1,
    owner: "f0@1",
    promptTokens: tokens,
    promptBytes: tokens * 4,
    hashSets: [{ blockSizeTokens: size, hashes: hashBlocks(ids, size, root) }],
    deadlineMs: 1e9,
    excluded: [],
  };
}

function stored(_request: PlaceRequest, blocks: number): KvEvent {
  const ids = Uint32Array.from({ length: blocks * size }, (_, at) => at + 1);
  return {
    kind: "stored",
    engineHashes: hashFromBigInt(...Array.from({ length: blocks }, (_, at) => BigInt(at + 1))),
    parentEngineHash: null,
    tokenIds: ids,
    blockSizeTokens: size,
    medium: "GPU",
    loraName: null,
    cacheSalt: null,
    extraKeys: null,
    groupIndex: 0,
    specKind: null,
  };
}

const at = (nowMs: number, tieDraw = 0.5) => ({ nowMs, wallMs: nowMs, tieDraw });

function winnerOf(result: ReturnType<PrefillPool["place"]>): string {
  return result.record.winner?.workerId ?? "nobody";
}

t.test(
  "a real history goes to its holder, a shared first block does not pin the pool",
  async (t) => {
    const pool = newPool(4);
    pool.applyEvent("p2", stored(prompt(0, 0, 0), 32));
    const share = new Map<string, number>();
    for (let id = 0; id < 400; id++) {
      const nowMs = id * 20_000; // far apart: everybody is idle each time
      const result = pool.place(prompt(id, 12_000, 32), at(nowMs, (id * 0.618) % 1));
      const winner = winnerOf(result);
      share.set(winner, (share.get(winner) ?? 0) + 1);
      pool.prefilled({ requestId: `r${id}`, attempt: 1 }, nowMs + 800);
      pool.applyEvent(winner, stored(prompt(id, 0, 0), 32)); // as an engine announces it
    }
    t.equal(share.size, 4, "everybody gets work");
    t.ok(Math.max(...share.values()) < 1.5 * 100, `no worker above 1.5 × the mean: ${[...share]}`);
    const long = newPool(4);
    long.applyEvent("p2", stored(prompt(0, 0, 0), 512));
    t.equal(
      winnerOf(long.place(prompt(1, 12_000, 512), at(0))),
      "p2",
      "8,192 cached tokens are worth going there",
    );
  },
);

t.test("the holder's queue is weighed against computing elsewhere", async (t) => {
  const pool = newPool(2);
  pool.applyEvent("p1", stored(prompt(0, 0, 0), 256));
  const seen: string[] = [];
  for (let id = 0; id < 24; id++) seen.push(winnerOf(pool.place(prompt(id, 5_000, 256), at(0))));
  t.equal(seen[0], "p1");
  t.ok(seen.includes("p0"), `waiting for the holder costs too much at some point: ${seen}`);
});

t.test("siblings of one burst go where the first one is, before any event says so", async (t) => {
  const pool = newPool(8);
  const winners = new Set<string>();
  for (let id = 0; id < 6; id++)
    winners.add(winnerOf(pool.place(prompt(id, 8_192 + 64, 512), at(id, id / 6))));
  t.equal(winners.size, 1);
});

t.test("a failed sibling takes its promise back at once", async (t) => {
  const pool = newPool(2);
  const leader = prompt(0, 8_192, 500);
  const first = winnerOf(pool.place(leader, at(0)));
  pool.withdrawn(leader, true, 1);
  const next = pool.place({ ...prompt(1, 8_192, 500), excluded: [first] }, at(2));
  t.not(winnerOf(next), first);
  const terms = next.record.candidates.find((each) => each.costMs !== null)!.terms;
  t.equal(terms.find((each) => each.name === "promised")!.value, 0);
});

t.test("who may not take the request is named with the reason", async (t) => {
  const pool = newPool(3);
  pool.applyUnreachable("p1", "ECONNREFUSED");
  const result = pool.place({ ...prompt(0, 100, 0), excluded: ["p0", "p2"] }, at(0));
  t.match(result.offers, {
    ok: false,
    error: {
      code: "BATON_NO_PREFILL_WORKER",
      message: /p0 failed this request before; p1 down: ECONNREFUSED/,
    },
  });
  t.equal(result.record.winner, null);
});

t.test("a prompt that no worker takes is the client's fault, also when all are down", async (t) => {
  const pool = newPool(2);
  for (const name of ["p0", "p1"])
    pool.applyProbe(name, { ...answered(), maxModelLenTokens: 1_024 } as Probe);
  const refused = { ok: false, error: { code: "BATON_BAD_REQUEST", message: /1100 tokens.*1024/ } };
  t.match(pool.place(prompt(0, 1_100, 0), at(0)).offers, refused);
  pool.applyUnreachable("p1", "ECONNREFUSED");
  t.match(pool.place(prompt(1, 1_100, 0), at(0)).offers, refused);
  t.equal(pool.place(prompt(2, 1_000, 0), at(0)).offers.ok, true);
});

t.test("a wait beyond the limit is turned away with the time to come back", async (t) => {
  const pool = newPool(1, { waitMsMax: 1_000 });
  const codes = Array.from(
    { length: 4 },
    (_, id) => pool.place(prompt(id, 8_192, 0), at(0)).offers,
  );
  t.same(
    codes.map((each) => each.ok),
    [true, true, true, false],
  );
  t.match(codes[3], { error: { code: "BATON_SATURATED", retryAfterS: 1 } });
});

t.test("the same place asked twice is charged once and answered the same", async (t) => {
  const pool = newPool(3);
  const first = pool.place(prompt(0, 4_000, 0), at(0));
  const again = pool.place(prompt(0, 4_000, 0), at(5, 0.9));
  t.equal(again, first);
  t.equal(pool.stats(5).leases, 1);
});

t.test("when the decode side takes another offer, the charge moves there", async (t) => {
  const pool = newPool(2);
  const result = pool.place(prompt(0, 4_000, 0), at(0));
  const other = result.offers.ok ? result.offers.value[1]!.worker.workerId : "";
  pool.moved({ requestId: "r0", attempt: 1 }, other, at(1));
  const loaded = pool
    .stats(1)
    .workers.filter((each) => each.leases > 0)
    .map((each) => each.workerId);
  t.same(loaded, [other]);
});

t.test(
  "a worker that is slower than its profile is learnt to be, and gets less work",
  async (t) => {
    const pool = newPool(2);
    for (let id = 0; id < 80; id++) {
      const nowMs = id * 5_000;
      const excluded = [id % 2 === 0 ? "p1" : "p0"];
      const winner = winnerOf(pool.place({ ...prompt(id, 4_000, 0), excluded }, at(nowMs)));
      pool.prefilled({ requestId: `r${id}`, attempt: 1 }, nowMs + (winner === "p0" ? 460 : 230));
    }
    const stats = pool.stats(400_000);
    const factors = new Map(stats.workers.map((each) => [each.workerId, each.rateFactor]));
    t.ok(factors.get("p0")! > 1.5 * factors.get("p1")!, `${[...factors]}`);
    t.equal(winnerOf(pool.place(prompt(100, 4_000, 0), at(400_000))), "p1");
  },
);

t.test("a worker whose first request was slow is tried again and not starved", async (t) => {
  const pool = newPool(2);
  const share = new Map<string, number>();
  for (let id = 0; id < 200; id++) {
    const nowMs = id * 1_000;
    const winner = winnerOf(pool.place(prompt(id, 2_000, 0), at(nowMs, (id * 0.618) % 1)));
    const isFirst = !share.has(winner);
    share.set(winner, (share.get(winner) ?? 0) + 1);
    pool.prefilled(
      { requestId: `r${id}`, attempt: 1 },
      nowMs + (winner === "p0" && isFirst ? 900 : 115),
    );
  }
  t.ok(share.get("p0")! > 60, `${[...share]}`);
});

t.test("round robin asks nobody's load", async (t) => {
  const pool = newPool(3, { policy: "round-robin" });
  const winners = Array.from({ length: 6 }, (_, id) =>
    winnerOf(pool.place(prompt(id, 4_000, 100), at(0))),
  );
  t.same(winners, ["p0", "p1", "p2", "p0", "p1", "p2"]);
});

t.test("the same history and draws give the same decisions", async (t) => {
  const run = () => {
    const pool = newPool(4);
    return Array.from(
      { length: 50 },
      (_, id) => pool.place(prompt(id, 3_000, id % 90), at(id * 30, (id * 0.37) % 1)).record,
    );
  };
  t.same(run(), run());
});

t.test(
  "whatever happens to requests, workers and frontends, nothing is held at the end",
  async (t) => {
    const step = fc.record({
      kind: fc.constantFrom(
        "place",
        "moved",
        "withdrawn",
        "prefilled",
        "restart",
        "owner",
        "sweep",
      ),
      id: fc.nat(9),
      worker: fc.nat(2),
      afterMs: fc.nat(500),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const pool = newPool(3);
        let nowMs = 0;
        let lives = 1;
        const live = new Set<number>();
        for (const each of steps) {
          nowMs += each.afterMs;
          const key = { requestId: `r${each.id}`, attempt: 1 };
          if (each.kind === "place") {
            pool.place({ ...prompt(each.id, 2_000, 40), owner: `f${each.id % 2}@1` }, at(nowMs));
            live.add(each.id);
          } else if (each.kind === "moved") pool.moved(key, `p${each.worker}`, at(nowMs));
          else if (each.kind === "withdrawn") pool.withdrawn(key, true, nowMs);
          else if (each.kind === "prefilled") pool.prefilled(key, nowMs);
          else if (each.kind === "restart") pool.applyProbe(`p${each.worker}`, answered(++lives));
          else if (each.kind === "owner") pool.releaseOwner(`f${each.id % 2}@1`, nowMs);
          else pool.sweep(nowMs);
          const stats = pool.stats(nowMs);
          const sum = stats.workers.reduce((total, worker) => total + worker.leases, 0);
          if (stats.leases > live.size || stats.workers.some((worker) => worker.waitMs < 0))
            return false;
          if (sum !== stats.leases) return false;
        }
        for (const id of live) pool.withdrawn({ requestId: `r${id}`, attempt: 1 }, false, nowMs);
        pool.sweep(nowMs + 1e9);
        const rest = pool.stats(nowMs + 1e9);
        return rest.leases === 0 && rest.predictedAttempts === 0;
      }),
      { numRuns: 300 },
    );
    t.pass();
  },
);
