import { HandleBroker, TransferLedger } from "@baton/transfer";
import fc from "fast-check";
import t from "tap";

const claim = (over: Partial<Parameters<HandleBroker["claim"]>[0]> = {}) => ({
  key: "r#1",
  prefill: "p0@1",
  handleId: "h",
  leaseMs: 30_000,
  ageMs: 10,
  ...over,
});

t.test("a handle is claimed once, by whoever asks first, and never again", async (t) => {
  const broker = new HandleBroker();
  t.match(broker.claim(claim(), 0), { kind: "claimed", presentWithinMs: 27_990 });
  t.match(broker.claim(claim({ key: "r#2" }), 0), { kind: "refused", reason: /claimed by r#1/ });
  broker.pulled("r#1");
  t.match(broker.claim(claim({ key: "r#2" }), 0), { kind: "refused", reason: /pulled by r#1/ });
  t.match(
    broker.claim(claim({ key: "r#2", prefill: "p0@2" }), 0),
    { kind: "claimed" },
    "another incarnation's handle is another handle",
  );
});

t.test("a handle with too little life left is refused", async (t) => {
  const broker = new HandleBroker();
  t.match(broker.claim(claim({ ageMs: 28_000 }), 0), {
    kind: "refused",
    reason: /expires in 2000 ms/,
  });
  t.equal(broker.openCount, 0);
});

t.test("a dead prefill incarnation fences its open handles and no other", async (t) => {
  const broker = new HandleBroker();
  broker.claim(claim({ key: "a", handleId: "1" }), 0);
  broker.claim(claim({ key: "b", handleId: "2" }), 0);
  broker.claim(claim({ key: "c", handleId: "3", prefill: "p1@1" }), 0);
  broker.pulled("b");
  t.same(broker.fence("p0@1"), ["a"]);
  t.equal(broker.openCount, 1);
});

t.test("after any history no handle was claimed twice, and all that ended is closed", async (t) => {
  const step = fc.record({
    kind: fc.constantFrom("claim", "pulled", "released", "fence", "sweep"),
    key: fc.nat(5),
    handle: fc.nat(5),
    worker: fc.nat(1),
    ageMs: fc.nat(40_000),
    afterMs: fc.nat(20_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const broker = new HandleBroker();
      const claimed = new Map<string, number>();
      const open = new Map<string, string>();
      let nowMs = 0;
      for (const each of steps) {
        nowMs += each.afterMs;
        const key = `k${each.key}`;
        const prefill = `w${each.worker}`;
        if (each.kind === "claim") {
          const answer = broker.claim(
            claim({ key, prefill, handleId: `${each.handle}`, ageMs: each.ageMs }),
            nowMs,
          );
          const id = `${prefill}/${each.handle}`;
          if (answer.kind === "claimed") {
            const lastMs = claimed.get(id);
            if (lastMs !== undefined && nowMs - lastMs < 30_000) return false;
            if (open.has(key) || each.ageMs + answer.presentWithinMs > 28_000) return false;
            claimed.set(id, nowMs);
            open.set(key, prefill);
          }
        } else if (each.kind === "pulled" || each.kind === "released") {
          broker[each.kind](key);
          open.delete(key);
        } else if (each.kind === "fence") {
          for (const fenced of broker.fence(prefill))
            if (open.get(fenced) !== prefill) return false;
          for (const [held, worker] of open) if (worker === prefill) open.delete(held);
        } else for (const leaked of broker.sweep(nowMs)) open.delete(leaked);
        if (broker.openCount !== open.size) return false;
      }
      return true;
    }),
    { numRuns: 500 },
  );
  t.pass();
});

t.test("bytes on links are conserved and exactly zero at rest", async (t) => {
  const transfer = fc.record({
    key: fc.nat(20).map(String),
    from: fc.constantFrom("p0", "p1"),
    to: fc.constantFrom("d0", "d1"),
    bytes: fc.nat(),
  });
  fc.assert(
    fc.property(
      fc.array(fc.record({ transfer, ends: fc.boolean() }), { maxLength: 60 }),
      (steps) => {
        const ledger = new TransferLedger();
        const live = new Map<string, { from: string; to: string; bytes: number }>();
        for (const { transfer: each, ends } of steps) {
          if (ends) {
            if ((ledger.release(each.key) !== undefined) !== live.delete(each.key)) return false;
          } else if (!live.has(each.key)) {
            ledger.reserve(each);
            live.set(each.key, each);
          }
          const sum = (side: "from" | "to", name: string) =>
            [...live.values()]
              .filter((one) => one[side] === name)
              .reduce((total, one) => total + one.bytes, 0);
          if (
            ledger.egressBytes("p0") !== sum("from", "p0") ||
            ledger.ingressBytes("d1") !== sum("to", "d1")
          )
            return false;
        }
        for (const key of [...live.keys()]) ledger.release(key);
        return (
          ledger.size === 0 && ledger.egressBytes("p0") === 0 && ledger.ingressBytes("d0") === 0
        );
      },
    ),
    { numRuns: 300 },
  );
  t.pass();
});

t.test("one more transfer waits for the fuller of its two links", async (t) => {
  const ledger = new TransferLedger();
  ledger.reserve({ key: "a", from: "p0", to: "d0", bytes: 1e9 });
  t.equal(ledger.finishMs({ from: "p1", to: "d0", bytes: 1e9 }, 1e10), 200);
  t.equal(ledger.finishMs({ from: "p1", to: "d1", bytes: 1e9 }, 1e10), 100);
});
