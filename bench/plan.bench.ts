import { parseArgs } from "node:util";
import { connectNatsBus, createMemoryBus } from "@baton/bus";
import { startNatsServer } from "@baton/bus/testing";
import { createDecodeScheduler, metricDefinitions as decodeMetrics } from "@baton/decode-scheduler";
import { tierWeightsFixed } from "@baton/domain";
import { hashListToBytes, invariant, ok, Prng } from "@baton/kit";
import { hashBlocks, namespaceRoot } from "@baton/kv-blocks";
import { engineProfiles, profileDefault } from "@baton/perf-model";
import type { Bus, EngineClient } from "@baton/ports";
import { MemoryLogger } from "@baton/ports/testing";
import {
  createPrefillScheduler,
  metricDefinitions as prefillMetrics,
} from "@baton/prefill-scheduler";
import { outcome, place, placed, reserve, reserved, subjectOf } from "@baton/protocol";
import type { WorkerSettings } from "@baton/scheduler-shell";
import { createMetrics, systemClock, systemTimers } from "@baton/service-host";

const help = `Both choices of a request, as a frontend asks for them: place, then reserve, one at a time.

Usage: npm run bench -- plan [--requests N] [--workers N] [--tokens N]

  --requests N   per bus (2000)
  --workers N    prefill and decode workers each (8)
  --tokens N     prompt tokens (8192), in blocks of 16

Latency as the asker sees it, CPU of the whole process (asker, both schedulers and client ends).
With NATS all three still share this process, nats-server is another.
`;

const model = "bench";
const frontend = { frontendId: "bench", incarnation: "1" };
const blockTokens = 16;

const { values } = parseArgs({
  options: {
    requests: { type: "string", default: "2000" },
    workers: { type: "string", default: "8" },
    tokens: { type: "string", default: "8192" },
    help: { type: "boolean", short: "h", default: false },
  },
});
const requests = Number(values.requests);
const tokens = Number(values.tokens);

/** An engine that answers its probes and is never sent a request. */
const engineClient: EngineClient = {
  dispatch: () => {
    throw new Error("this bench sends nothing to engines");
  },
  async fetchText({ path }) {
    if (path === "/v1/models") return ok({ status: 200, text: `{"data":[{"id":"${model}"}]}` });
    if (path === "/metrics") {
      const text = `process_start_time_seconds 1\nvllm:cache_config_info{block_size="${blockTokens}",num_gpu_blocks="1000000"} 1\nvllm:kv_cache_usage_perc 0\n`;
      return ok({ status: 200, text });
    }
    return ok({ status: 200, text: "" });
  },
  close: async () => {},
};

interface Figures {
  readonly p50Us: number;
  readonly p99Us: number;
  readonly cpuUs: number;
}

async function measure(connect: (name: string) => Promise<Bus>): Promise<Figures> {
  const ports = {
    clock: systemClock,
    timers: systemTimers,
    logger: new MemoryLogger(),
    engineClient,
    kvEventSource: null,
  };
  const pool = {
    model,
    schedulerId: "bench",
    pollIntervalMs: 60_000,
    pollTimeoutMs: 1_000,
    decisionsKept: 1_000,
    policy: "cost",
    seed: 1,
  } as const;
  const profile = engineProfiles[profileDefault]!;
  const workersOf = (role: "prefill" | "decode"): WorkerSettings[] =>
    Array.from({ length: Number(values.workers) }, (_, at) => ({
      workerId: `${role[0]}${at}`,
      url: "http://127.0.0.1:1",
      role,
      dialect: "vllm",
      connector: "nixl-pull",
      kvEvents: { kind: "off" },
    }));
  const prefill = createPrefillScheduler(
    {
      ...pool,
      workers: workersOf("prefill"),
      coefficients: profile.prefill,
      tierWeights: tierWeightsFixed,
      waitMsMax: 1e9,
    },
    { ...ports, metrics: createMetrics(prefillMetrics), bus: await connect("prefill-scheduler") },
  );
  const decode = createDecodeScheduler(
    {
      ...pool,
      workers: workersOf("decode"),
      profile,
      linkBytesPerSecond: 50e9,
      outputTokensDefault: 256,
      handleLeaseMs: null,
    },
    { ...ports, metrics: createMetrics(decodeMetrics), bus: await connect("decode-scheduler") },
  );
  await Promise.all([prefill.start(), decode.start()]);
  const bus = await connect("frontend");
  const prng = new Prng(1);
  const root = namespaceRoot({ model, loraName: null, cacheSalt: null });
  const latenciesUs: number[] = [];
  const warmUp = Math.min(200, requests);
  let cpu = process.cpuUsage();
  for (let at = -warmUp; at < requests; at++) {
    if (at === 0) cpu = process.cpuUsage();
    const ids = Uint32Array.from({ length: tokens }, () => prng.below(100_000));
    const hashSets = [
      { blockSizeTokens: blockTokens, hashes: hashListToBytes(hashBlocks(ids, blockTokens, root)) },
    ];
    const base = {
      requestId: `r${at}`,
      attempt: 1,
      frontend,
      promptTokens: tokens,
      promptBytes: tokens * 4,
      hashSets,
      maxOutputTokens: 100,
      deadlineMs: 60_000,
      excluded: [],
    };
    const startNs = process.hrtime.bigint();
    const placing = await bus.request(subjectOf(model, "prefill", "place"), place.encode(base), {
      deadlineMs: 5_000,
    });
    invariant(placing.ok, "place is answered");
    const offers = placed.decode(placing.value);
    invariant(offers.ok && offers.value.kind === "bound", "place binds");
    const candidates = offers.value.candidates.map(({ worker, isAggregated, connector }) => ({
      worker,
      isAggregated,
      connector,
    }));
    const reserving = await bus.request(
      subjectOf(model, "decode", "reserve"),
      reserve.encode({ ...base, candidates }),
      { deadlineMs: 5_000 },
    );
    invariant(reserving.ok, "reserve is answered");
    const room = reserved.decode(reserving.value);
    invariant(room.ok && room.value.kind === "remote", "reserve grants");
    if (at >= 0) latenciesUs.push(Number(process.hrtime.bigint() - startNs) / 1_000);
    const stage = {
      kind: "ended",
      end: "done",
      workerFault: false,
      outputTokens: 100,
      reason: "",
    } as const;
    const ended = outcome.encode({ requestId: base.requestId, attempt: 1, frontend, stage });
    bus.publish(subjectOf(model, "prefill", "outcome"), ended);
    bus.publish(subjectOf(model, "decode", "outcome"), ended);
  }
  const used = process.cpuUsage(cpu);
  await Promise.all([prefill.drain(), decode.drain(), bus.drain()]);
  latenciesUs.sort((left, right) => left - right);
  const percentile = (share: number) =>
    Math.round(latenciesUs[Math.ceil(share * latenciesUs.length) - 1]!);
  return {
    p50Us: percentile(0.5),
    p99Us: percentile(0.99),
    cpuUs: Math.round((used.user + used.system) / requests),
  };
}

async function run(): Promise<void> {
  const hub = createMemoryBus({ maxPayloadBytes: 8 * 1024 * 1024 });
  const memory = await measure(async (name) => hub.connect({ name }));
  const server = await startNatsServer();
  let nats: Figures | null = null;
  if (server !== null) {
    nats = await measure(async (name) => {
      const bus = await connectNatsBus({ url: server.url, name });
      invariant(bus.ok, "nats-server takes the connection");
      return bus.value;
    });
    await server.stop();
  }
  const row = (name: string, figures: Figures | null) =>
    figures === null
      ? `${name.padEnd(14)} not measured: nats-server not found`
      : `${name.padEnd(14)} ${String(figures.p50Us).padStart(8)} ${String(figures.p99Us).padStart(8)} ${String(figures.cpuUs).padStart(10)}`;
  process.stdout.write(`plan: place and reserve, ${requests} requests of ${tokens} tokens, ${values.workers} + ${values.workers} workers
bus              p50 us   p99 us   cpu us/request (hashing the prompt included)
${row("in-memory", memory)}
${row("nats", nats)}
`);
  process.stdout.write(
    `${JSON.stringify({ requests, tokens, workers: Number(values.workers), memory, nats })}\n`,
  );
}

if (values.help) process.stdout.write(help);
else await run();
