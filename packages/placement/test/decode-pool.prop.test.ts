import { noSignals, type Probe, type WorkerConfig } from "@baton/fleet";
import { known } from "@baton/kit";
import { engineProfiles, profileDefault } from "@baton/perf-model";
import { DecodePool, type ReserveRequest } from "@baton/placement";
import fc from "fast-check";
import t from "tap";

const model = "m";

function answered(startS = 1, capacityTokens = 100_000, usage = 0): Probe {
  const signals = {
    ...noSignals,
    processStartS: known(startS, 0),
    kvCapacityTokens: known(capacityTokens, 0),
    kvUsageRatio: known(usage, 0),
  };
  return { kind: "answered", models: [model], maxModelLenTokens: null, version: null, signals };
}

function newPool(count: number, over: Partial<WorkerConfig> = {}): DecodePool {
  const workers: WorkerConfig[] = Array.from({ length: count }, (_, at) => ({
    workerId: `d${at}`,
    url: `http://d${at}`,
    role: "decode",
    dialect: "vllm",
    connector: "nixl-pull",
    ...over,
  }));
  const pool = new DecodePool({
    model,
    workers,
    policy: "cost",
    profile: engineProfiles[profileDefault]!,
    linkBytesPerSecond: 50e9,
    outputTokensDefault: 256,
  });
  for (const { workerId } of workers) pool.applyProbe(workerId, answered());
  return pool;
}

function request(id: number, over: Partial<ReserveRequest> = {}): ReserveRequest {
  return {
    requestId: `r${id}`,
    attempt: 1,
    owner: "f0@1",
    promptTokens: 8_000,
    promptBytes: 32_000,
    maxOutputTokens: 200,
    deadlineMs: 1e9,
    offers: [
      { worker: { workerId: "p0", incarnation: "1" }, isAggregated: false, connector: "nixl-pull" },
    ],
    excluded: [],
    ...over,
  };
}

const at = (nowMs: number, tieDraw = 0.5) => ({ nowMs, wallMs: nowMs, tieDraw });
const key = (id: number) => ({ requestId: `r${id}`, attempt: 1 });
const claim = (id: number, handleId = `h${id}`) => ({
  key: `r${id}#1`,
  worker: { workerId: "p0", incarnation: "1" },
  handleId,
  leaseMs: 30_000,
  ageMs: 1,
});

t.test("equal workers share requests by the KV that they hold", async (t) => {
  const pool = newPool(4);
  for (let id = 0; id < 24; id++) pool.reserve(request(id), at(0, (id * 0.618) % 1));
  t.same(
    pool.stats().workers.map((each) => each.leases),
    [6, 6, 6, 6],
  );
});

t.test("a request goes only where prompt and answer have room, promises included", async (t) => {
  const pool = newPool(2);
  const results = Array.from(
    { length: 26 },
    (_, id) => pool.reserve(request(id), at(0)).reservation,
  );
  t.equal(
    results.filter((each) => each.ok).length,
    22,
    "11 × 8,200 tokens fit into 98 % of 100,000",
  );
  t.match(results.at(-1), { error: { code: "BATON_SATURATED", message: /room for/ } });
  pool.ended(key(0), false, 1);
  t.equal(pool.reserve(request(99), at(1)).reservation.ok, true, "room that is given back is used");
});

t.test("what the engine reports counts, even when our own sum is lower", async (t) => {
  const pool = newPool(2);
  pool.applyProbe("d0", answered(1, 100_000, 0.95));
  const result = pool.reserve(request(0), at(0));
  t.equal(result.record.winner?.workerId, "d1");
  t.match(result.record.candidates[0], { rejected: /room for 3000 tokens/ });
});

t.test("a report taken while our own requests ran does not outlive them", async (t) => {
  const pool = newPool(1);
  for (let id = 0; id < 11; id++) pool.reserve(request(id), at(0));
  pool.applyProbe("d0", answered(1, 100_000, 0.9));
  t.match(pool.reserve(request(20), at(1)).reservation, { ok: false });
  for (let id = 0; id < 11; id++) pool.ended(key(id), false, 2);
  t.match(
    pool.reserve(request(21), at(3)).reservation,
    { ok: true },
    "no need to wait for the next report",
  );
});

t.test("what no worker can ever hold is the client's fault, not a matter of waiting", async (t) => {
  const pool = newPool(2);
  const huge = request(0, { promptTokens: 99_000, maxOutputTokens: 10 });
  t.match(pool.reserve(huge, at(0)).reservation, {
    ok: false,
    error: { code: "BATON_BAD_REQUEST", message: /99010 tokens.*98000/ },
  });
});

t.test("a worker of another protocol is never paired", async (t) => {
  const pool = newPool(2, { connector: "none" });
  t.match(pool.reserve(request(0), at(0)).reservation, {
    error: { code: "BATON_NO_COMPATIBLE_PAIR" },
  });
});

t.test("an aggregated worker decodes what it prefilled", async (t) => {
  const pool = newPool(3, { role: "both", connector: "none" });
  const offers = [
    { worker: { workerId: "d1", incarnation: "1" }, isAggregated: true, connector: "none" },
  ];
  const result = pool.reserve(request(0, { offers }), at(0));
  t.match(result.reservation, { ok: true, value: { kind: "local", decode: { workerId: "d1" } } });
  t.equal(pool.stats().transfers, 0);
});

t.test("a request without offers runs whole on a decode worker", async (t) => {
  const pool = newPool(2);
  t.match(pool.reserve(request(0, { offers: [] }), at(0)).reservation, {
    ok: true,
    value: { kind: "local" },
  });
});

t.test("link bytes are held until the first byte, room until the end", async (t) => {
  const pool = newPool(1);
  pool.reserve(request(0), at(0));
  t.match(pool.stats(), { leases: 1, transfers: 1, workers: [{ ingressBytes: 8_000 * 262_144 }] });
  t.match(pool.claim(claim(0), 0), { kind: "claimed" });
  pool.firstByte(key(0));
  t.match(pool.stats(), { leases: 1, transfers: 0, openHandles: 0 });
  pool.ended(key(0), false, 1);
  t.match(pool.stats(), {
    leases: 0,
    transfers: 0,
    openHandles: 0,
    workers: [{ kvTokens: 0, ingressBytes: 0 }],
  });
});

t.test("no handle without a reservation, and each once", async (t) => {
  const pool = newPool(1);
  t.match(pool.claim(claim(0), 0), { kind: "refused", reason: /no reservation/ });
  pool.reserve(request(0), at(0));
  pool.reserve(request(1), at(0));
  t.equal(pool.claim(claim(0, "h"), 0).kind, "claimed");
  t.match(pool.claim(claim(1, "h"), 0), { kind: "refused" });
});

t.test(
  "a prefill worker that restarted fences its open handles and has new ones only",
  async (t) => {
    const pool = newPool(1);
    for (let id = 0; id < 3; id++) pool.reserve(request(id), at(0));
    pool.prefillLife({ workerId: "p0", incarnation: "1" });
    t.equal(pool.claim(claim(0), 0).kind, "claimed");
    t.equal(pool.prefillLife({ workerId: "p0", incarnation: "2" }), 1, "one handle was open");
    t.equal(pool.stats().openHandles, 0);
    t.match(pool.claim(claim(1), 0), { kind: "refused", reason: /p0 restarted/ });
    const fresh = { ...claim(2), worker: { workerId: "p0", incarnation: "2" } };
    t.equal(pool.claim(fresh, 0).kind, "claimed");
  },
);

t.test("the same reserve asked twice holds once", async (t) => {
  const pool = newPool(2);
  t.equal(pool.reserve(request(0), at(0)), pool.reserve(request(0), at(1, 0.9)));
  t.equal(pool.stats().leases, 1);
});

t.test(
  "whatever happens, promises never pass the capacity and nothing is held at the end",
  async (t) => {
    const step = fc.record({
      kind: fc.constantFrom("reserve", "claim", "first", "ended", "restart", "owner", "sweep"),
      id: fc.nat(30),
      worker: fc.nat(1),
      tokens: fc.integer({ min: 1, max: 40_000 }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
        const pool = newPool(2);
        let lives = 1;
        steps.forEach((each, nowMs) => {
          if (each.kind === "reserve") {
            pool.reserve(
              request(each.id, { promptTokens: each.tokens, owner: `f${each.id % 2}@1` }),
              at(nowMs),
            );
          } else if (each.kind === "claim") pool.claim(claim(each.id), nowMs);
          else if (each.kind === "first") pool.firstByte(key(each.id));
          else if (each.kind === "ended") pool.ended(key(each.id), true, nowMs);
          else if (each.kind === "restart") pool.applyProbe(`d${each.worker}`, answered(++lives));
          else if (each.kind === "owner") pool.releaseOwner(`f${each.id % 2}@1`);
          else pool.sweep(nowMs);
          for (const worker of pool.stats().workers) {
            if (worker.kvTokens > 98_000) throw new Error("over-credited");
          }
        });
        for (let id = 0; id <= 30; id++) pool.ended(key(id), false, 1e6);
        pool.sweep(1e9);
        const rest = pool.stats();
        return rest.leases === 0 && rest.transfers === 0 && rest.openHandles === 0;
      }),
      { numRuns: 300 },
    );
    t.pass();
  },
);
