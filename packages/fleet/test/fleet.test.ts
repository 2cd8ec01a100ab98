import {
  DecayedSum,
  FaultGate,
  Fleet,
  LeaseLedger,
  type LoadLease,
  noSignals,
  type Probe,
  parsePrometheus,
  readVllmSignals,
} from "@baton/fleet";
import { known } from "@baton/kit";
import fc from "fast-check";
import t from "tap";

const config = {
  workerId: "p0",
  url: "http://a:1",
  role: "prefill",
  dialect: "vllm",
  connector: "nixl-pull",
} as const;
const answered = (startS: number | null, models: readonly string[] | null = ["m"]): Probe => ({
  kind: "answered",
  models,
  maxModelLenTokens: 1_024,
  version: "0.32.0",
  signals: { ...noSignals, ...(startS === null ? {} : { processStartS: known(startS, 0) }) },
});
const newFleet = () => new Fleet({ model: "m", workers: [config] });

t.test(
  "a worker is up once it answers and serves the model, and says why when it is not",
  async (t) => {
    const fleet = newFleet();
    t.equal(fleet.barrier(fleet.get("p0")!, 0), "unknown: not asked yet");
    t.match(fleet.applyProbe("p0", answered(5)), [
      { kind: "incarnation", ended: null },
      { state: "up" },
    ]);
    t.equal(fleet.barrier(fleet.get("p0")!, 0), null);
    fleet.applyProbe("p0", answered(5, ["other"]));
    t.equal(fleet.barrier(fleet.get("p0")!, 0), "down: serves other, not m");
  },
);

t.test("one lost probe is no death, two are, and a refused connection is at once", async (t) => {
  const fleet = newFleet();
  fleet.applyProbe("p0", answered(5));
  t.same(fleet.applyProbe("p0", { kind: "failed", reason: "timeout" }), []);
  t.match(fleet.applyProbe("p0", { kind: "failed", reason: "timeout" }), [{ state: "down" }]);
  fleet.applyProbe("p0", answered(5));
  t.match(fleet.applyUnreachable("p0", "refused"), [{ state: "down", reason: "refused" }]);
});

t.test("a new start time is a new incarnation; the same one after an outage is not", async (t) => {
  const fleet = newFleet();
  fleet.applyProbe("p0", answered(5));
  const first = fleet.get("p0")!.incarnation;
  fleet.applyUnreachable("p0", "refused");
  fleet.applyProbe("p0", answered(5));
  t.equal(fleet.get("p0")!.incarnation, first, "a network cut leaves the cache alone");
  t.match(fleet.applyProbe("p0", answered(6)), [{ kind: "incarnation", ended: first }]);
  t.not(fleet.get("p0")!.incarnation, first);
});

t.test("an engine that tells no start time begins a new life after each outage", async (t) => {
  const fleet = newFleet();
  fleet.applyProbe("p0", answered(null));
  const first = fleet.get("p0")!.incarnation;
  fleet.applyUnreachable("p0", "refused");
  t.match(fleet.applyProbe("p0", answered(null)), [
    { kind: "incarnation", ended: first },
    { state: "up" },
  ]);
});

t.test("a draining worker takes no new work and stays in its life", async (t) => {
  const fleet = newFleet();
  fleet.applyProbe("p0", answered(5));
  const life = fleet.get("p0")!.incarnation;
  fleet.drain("p0", true);
  fleet.applyProbe("p0", answered(5));
  t.equal(fleet.barrier(fleet.get("p0")!, 0), "draining: answers");
  fleet.drain("p0", false);
  t.equal(fleet.barrier(fleet.get("p0")!, 0), null);
  t.equal(fleet.get("p0")!.incarnation, life);
});

t.test(
  "repeated faults set a worker aside, longer each time, and one success ends it",
  async (t) => {
    const gate = new FaultGate();
    for (let n = 0; n < 3; n++) gate.fault(0);
    t.equal(gate.isOpen(1_999), true);
    t.equal(gate.isOpen(2_000), false, "half-open: the next request may try");
    gate.fault(2_000);
    t.equal(gate.isOpen(5_999), true, "the second time is twice as long");
    gate.success();
    t.equal(gate.isOpen(3_000), false);
    gate.fault(3_000);
    t.equal(gate.isOpen(3_001), false, "one fault after a success is no quarantine");
  },
);

t.test("each lease ends exactly once, whatever ends it", async (t) => {
  type Step = { kind: "grant" | "release" | "worker" | "owner" | "overdue"; n: number };
  const step = fc.record({
    kind: fc.constantFrom("grant", "release", "worker", "owner", "overdue"),
    n: fc.nat(11),
  }) as fc.Arbitrary<Step>;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const ledger = new LeaseLedger<LoadLease>();
      const live = new Map<string, LoadLease>();
      const end = (ended: readonly LoadLease[], expected: readonly LoadLease[]) => {
        if (ended.length !== expected.length) throw new Error("ended other leases");
        for (const lease of ended) if (!live.delete(lease.key)) throw new Error("ended twice");
      };
      for (const { kind, n } of steps) {
        const lease = { key: `k${n}`, worker: `w${n % 3}`, owner: `o${n % 2}`, deadlineMs: n };
        const where = (test: (each: LoadLease) => boolean) => [...live.values()].filter(test);
        if (kind === "grant" && !live.has(lease.key)) {
          ledger.grant(lease);
          live.set(lease.key, lease);
        } else if (kind === "release") {
          const ended = ledger.release(lease.key);
          end(
            ended === undefined ? [] : [ended],
            where((each) => each.key === lease.key),
          );
        } else if (kind === "worker") {
          end(
            ledger.releaseWorker(lease.worker),
            where((each) => each.worker === lease.worker),
          );
        } else if (kind === "owner") {
          end(
            ledger.releaseOwner(lease.owner),
            where((each) => each.owner === lease.owner),
          );
        } else if (kind === "overdue") {
          end(
            ledger.releaseOverdue(n),
            where((each) => each.deadlineMs <= n),
          );
        }
        const counted = ["w0", "w1", "w2"].reduce(
          (sum, each) => sum + ledger.countOnWorker(each),
          0,
        );
        if (ledger.size !== live.size || counted !== live.size) return false;
      }
      return true;
    }),
    { numRuns: 500 },
  );
  t.pass();
});

t.test(
  "vLLM's signals are read under new and old names; missing ones are absent, not zero",
  async (t) => {
    const text = (usage: string) => `# HELP x y
${usage}
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_running{engine="1",model_name="tiny"} 3.0
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="64",text="a\\"b,c=\\"d"} 1.0
process_start_time_seconds 1.79606762641e+09
`;
    const current = readVllmSignals(text('vllm:kv_cache_usage_perc{engine="0"} 0.25'), 7);
    t.same(current.kvUsageRatio, { kind: "known", value: 0.25, atMs: 7 });
    t.same(current.requestsRunning, { kind: "known", value: 5, atMs: 7 });
    t.same(current.requestsWaiting, { kind: "absent" });
    t.same(current.kvCapacityTokens, { kind: "known", value: 63 * 32, atMs: 7 });
    t.same(current.processStartS, { kind: "known", value: 1_796_067_626.41, atMs: 7 });
    const old = readVllmSignals(text('vllm:gpu_cache_usage_perc{engine="0"} 0.5'), 7);
    t.same(old.kvUsageRatio, { kind: "known", value: 0.5, atMs: 7 });
    t.same(readVllmSignals("<html>", 7).kvUsageRatio, { kind: "absent" });
  },
);

t.test("text that is no exposition never throws", async (t) => {
  fc.assert(fc.property(fc.string(), (text) => void parsePrometheus(text, new Set(["a"]))));
  const samples = parsePrometheus('a{x="1"} +Inf\na 2 123\na{ nonsense\nb 1\n', new Set(["a"]));
  t.same(samples.get("a"), [
    { labels: { x: "1" }, value: Number.POSITIVE_INFINITY },
    { labels: {}, value: 2 },
  ]);
});

t.test("given work fades by half in each half-life", async (t) => {
  const sum = new DecayedSum(1_000);
  sum.add(8, 0);
  t.equal(sum.at(3_000), 1);
  sum.add(1, 3_000);
  t.equal(sum.at(3_000), 2);
});
