import { createMemoryBus } from "@baton/bus";
import { createDecodeScheduler, metricDefinitions as decodeMetrics } from "@baton/decode-scheduler";
import { type BatonError, tierWeightsFixed } from "@baton/domain";
import { configSchema as frontendSchema, type OpenedFrontend, openFrontend } from "@baton/frontend";
import { invariant, type Outcome, ok } from "@baton/kit";
import { createZmqKvEventSource } from "@baton/kv-feed";
import { type EngineProfile, engineProfiles, profileDefault } from "@baton/perf-model";
import type { Policy } from "@baton/placement";
import type { Bus } from "@baton/ports";
import {
  createPrefillScheduler,
  metricDefinitions as prefillMetrics,
} from "@baton/prefill-scheduler";
import type { WorkerSettings } from "@baton/scheduler-shell";
import {
  type AdminServer,
  createMetrics,
  type HostLogger,
  loadConfig,
  problemText,
  systemClock,
  systemTimers,
} from "@baton/service-host";
import {
  type BusSettings,
  openBus,
  openEngineClient,
  processIdentity,
  serveSchedulerAdmin,
} from "@baton/service-wiring";

export interface LaptopOptions {
  readonly model: string;
  readonly prefillWorkers: readonly WorkerSettings[];
  readonly decodeWorkers: readonly WorkerSettings[];
  readonly policy: Policy;
  /** How many times faster than the default profile the engines are. */
  readonly speed: number;
  /** NATS server; null: the bus inside this process. */
  readonly natsUrl: string | null;
  readonly port: number;
  /** First admin port; 0 takes free ones. */
  readonly adminPort: number;
  readonly host: string;
  readonly tokenizerMode: "engine" | "none";
  readonly logger: HostLogger;
  /** Seed of the schedulers' draws; null takes a random one. */
  readonly seed: number | null;
}

export interface Laptop {
  readonly url: string;
  readonly adminUrls: { readonly prefill: string; readonly decode: string };
  readonly seed: number;
  /** What keeps requests from being served; empty when nothing does. */
  missing(): string[];
  readonly frontend: OpenedFrontend["frontend"];
  drain(deadlineMs: number): Promise<void>;
}

/** The three services in this process, on one bus. */
export async function openLaptop(options: LaptopOptions): Promise<Outcome<Laptop, BatonError>> {
  const { logger } = options;
  const closers: (() => Promise<void>)[] = [];
  const undo = async <E>(failure: { readonly ok: false; readonly error: E }) => {
    for (const close of closers.reverse()) await close();
    return failure;
  };
  const shared = { clock: systemClock, timers: systemTimers, logger };
  const engineClient = openEngineClient({ ...frontendConfig({}).engine, credentials: [] }, logger);
  if (!engineClient.ok) return engineClient;
  closers.push(() => engineClient.value.close());
  const buses: Bus[] = [];
  const hub =
    options.natsUrl === null ? createMemoryBus({ maxPayloadBytes: 8 * 1024 * 1024 }) : null;
  for (const name of ["prefill-scheduler", "decode-scheduler", "frontend"]) {
    const bus =
      hub === null ? await openNats(options.natsUrl!, name, logger) : ok(hub.connect({ name }));
    if (!bus.ok) return undo(bus);
    buses.push(bus.value);
    closers.push(() => bus.value.drain());
  }
  const kvEventSource = createZmqKvEventSource(shared);
  closers.push(() => kvEventSource.close());
  const seed = options.seed ?? processIdentity("laptop").seed;
  const profile = scaled(engineProfiles[profileDefault]!, options.speed);
  const pool = {
    model: options.model,
    schedulerId: "laptop",
    pollIntervalMs: 500,
    pollTimeoutMs: 2_000,
    decisionsKept: 50_000,
    policy: options.policy,
    seed,
  };
  const ports = { ...shared, engineClient: engineClient.value };
  const prefillRegistry = createMetrics(prefillMetrics, {
    defaultLabels: { service: "prefill-scheduler" },
  });
  const prefill = createPrefillScheduler(
    {
      ...pool,
      workers: options.prefillWorkers,
      coefficients: profile.prefill,
      tierWeights: tierWeightsFixed,
      waitMsMax: 600_000,
    },
    { ...ports, metrics: prefillRegistry, bus: buses[0]!, kvEventSource },
  );
  const decodeRegistry = createMetrics(decodeMetrics, {
    defaultLabels: { service: "decode-scheduler" },
  });
  const decode = createDecodeScheduler(
    {
      ...pool,
      workers: options.decodeWorkers,
      profile,
      linkBytesPerSecond: 25e9 * options.speed,
      outputTokensDefault: 512,
      handleLeaseMs: null,
    },
    { ...ports, metrics: decodeRegistry, bus: buses[1]!, kvEventSource: null },
  );
  const admins: AdminServer[] = [];
  for (const [at, scheduler, metrics] of [
    [0, prefill, prefillRegistry],
    [1, decode, decodeRegistry],
  ] as const) {
    const port = options.adminPort === 0 ? 0 : options.adminPort + at;
    const settings = { host: "127.0.0.1", port, tokenFile: null, insecure: false };
    const admin = await serveSchedulerAdmin(settings, scheduler, { metrics, logger });
    if (!admin.ok) return undo(admin);
    admins.push(admin.value);
    closers.push(() => admin.value.close());
  }
  const config = frontendConfig({
    "http.port": options.port,
    "http.host": options.host,
    "tokenizer.mode": options.tokenizerMode,
  });
  const frontend = await openFrontend(config, shared, {
    bus: buses[2]!,
    engineClient: engineClient.value,
  });
  if (!frontend.ok) return undo(frontend);
  // The order lets each begin with what the one before it tells.
  await Promise.all([prefill.start(), decode.start()]);
  return ok({
    url: frontend.value.server.url,
    adminUrls: { prefill: admins[0]!.url, decode: admins[1]!.url },
    seed,
    frontend: frontend.value.frontend,
    missing: () => [...prefill.missing(), ...decode.missing()],
    async drain(deadlineMs) {
      await frontend.value.drain(deadlineMs);
      await Promise.all([prefill.drain(), decode.drain()]);
      for (const close of closers.reverse()) await close();
    },
  });
}

function scaled(profile: EngineProfile, speed: number): EngineProfile {
  const faster = (each: { aMs: number; bMs: number; cMs: number }) => ({
    aMs: each.aMs / speed,
    bMs: each.bMs / speed,
    cMs: each.cMs / speed,
  });
  return { ...profile, prefill: faster(profile.prefill), decode: faster(profile.decode) };
}

/** The frontend's own defaults; only what laptop mode must set differs. */
function frontendConfig(overrides: Readonly<Record<string, unknown>>) {
  const loaded = loadConfig({
    schema: frontendSchema,
    file: null,
    env: {},
    overrides: { "bus.url": "nats://unused", ...overrides },
  });
  invariant(loaded.ok, loaded.ok ? "" : loaded.error.map(problemText).join("; "));
  return loaded.value.value;
}

function openNats(url: string, name: string, logger: HostLogger) {
  const settings: BusSettings = {
    url,
    user: null,
    passwordFile: null,
    tokenFile: null,
    nkeySeedFile: null,
    credsFile: null,
    caFile: null,
    certFile: null,
    keyFile: null,
    connectDeadlineMs: 5_000,
  };
  return openBus(settings, name, { logger, signal: new AbortController().signal });
}
