import { randomBytes, randomUUID } from "node:crypto";
import type { Server } from "node:http";
import { EngineModel, engineModelDefaults } from "@baton/engine-model";
import { Prng } from "@baton/kit";
import type { Logger } from "@baton/ports";
import { systemFingerprint } from "./admin-routes.ts";
import { engineDeadError, internalError } from "./api-error.ts";
import { EngineClock } from "./engine-clock.ts";
import { EngineRuntime } from "./engine-runtime.ts";
import { type EventOutlet, openEventOutlet } from "./event-outlet.ts";
import { type Faults, noFaults } from "./faults.ts";
import type { GenerationDeps } from "./generation-deps.ts";
import { GenerationDesk } from "./generation-desk.ts";
import { listenHttp, portOf } from "./http-api.ts";
import { KvPuller } from "./kv-puller.ts";
import { Ledger } from "./ledger.ts";
import type { EngineSimOptions } from "./options.ts";
import { Peers } from "./peers.ts";
import { RequestMetrics } from "./request-metrics.ts";
import { SideChannel } from "./side-channel.ts";
import { simRoutes } from "./sim-routes.ts";
import { StderrLogger } from "./stderr-logger.ts";

export interface EngineSim {
  readonly url: string;
  readonly engineId: string;
  readonly sideChannelPort: number;
  /** Null without cache events. */
  readonly kvEvents: string | null;
  readonly kvReplay: string | null;
  /** Takes no new connections, lets what runs finish for at most `graceMs`, then closes all. */
  stop(graceMs: number): Promise<void>;
}

/**
 * One engine in this process: HTTP API, side channel, cache events. `onDeath` is called, once, where
 * a real engine would end; its requests have an answer by then. Rejects when a port is taken.
 */
export async function createEngineSim(
  options: EngineSimOptions,
  onDeath: (reason: string) => void,
): Promise<EngineSim> {
  const engineId = options.engineId ?? randomUUID();
  const clock = new EngineClock(options.speed);
  const model = createModel(options);
  const faults = noFaults();
  const metrics = new RequestMetrics();
  const ledger = new Ledger(model, options.model);
  const logger = new StderrLogger({ engineId, role: options.role });
  const outlet = await openOutlet(options, logger);
  const runtime = openRuntime({ model, clock, faults, metrics, outlet });
  const sideChannel = await openSideChannel({ options, engineId, model, runtime });
  const address = { engineId, host: options.advertisedHost, port: sideChannel.port };
  const { desk, puller } = openDesk({
    options,
    onDeath,
    shared: { model, runtime, clock, metrics, ledger, faults, address },
  });
  const events = outlet === null ? null : { ...outlet, topic: options.kvEvents?.topic ?? "" };
  const routes = simRoutes({ options, model, desk, ledger, metrics, faults, events });
  const server = await listenHttp({ host: options.host, port: options.port }, routes);
  return {
    url: `http://${options.advertisedHost}:${portOf(server)}`,
    engineId,
    sideChannelPort: sideChannel.port,
    kvEvents: outlet?.endpoint ?? null,
    kvReplay: outlet?.replayEndpoint ?? null,
    async stop(graceMs) {
      const closed = closeServer(server);
      await withDeadline(desk.idle(), graceMs);
      desk.failAll(internalError);
      puller.close();
      runtime.close();
      sideChannel.close();
      await outlet?.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

function openRuntime(parts: {
  readonly model: EngineModel;
  readonly clock: EngineClock;
  readonly faults: Faults;
  readonly metrics: RequestMetrics;
  readonly outlet: EventOutlet | null;
}): EngineRuntime {
  const { model, clock, faults, metrics, outlet } = parts;
  return new EngineRuntime({
    model,
    clock,
    onEvents: (events, atMs) => {
      if (faults.muteEvents || outlet === null) return;
      const isLost = faults.dropEvents > 0;
      if (isLost) faults.dropEvents--;
      outlet.publish({ events, wallS: clock.wallS(atMs), isLost });
    },
    onStep: (tokens) => metrics.histograms.iteration_tokens_total.observe(tokens),
  });
}

/** Requests in, pulls out, and the one way to die. */
function openDesk(parts: {
  readonly options: EngineSimOptions;
  readonly onDeath: (reason: string) => void;
  readonly shared: Omit<GenerationDeps, "puller" | "ids" | "kvBytesPerToken" | "tellsCachedTokens">;
}): { desk: GenerationDesk; puller: KvPuller } {
  const { options, shared } = parts;
  let isDead = false;
  const die = (reason: string): void => {
    if (isDead) return;
    isDead = true;
    desk.failAll(engineDeadError);
    parts.onDeath(reason);
  };
  const puller = new KvPuller({
    runtime: shared.runtime,
    peers: new Peers(options.handshakeTimeoutMs),
    leaseMs: options.leaseMs,
    onFatal: (requestId, reason) => {
      if (options.survivesBadHandles) puller.failOne(requestId, reason);
      else die(reason);
    },
  });
  const desk = new GenerationDesk({
    deps: {
      ...shared,
      puller,
      ids: new Prng(options.seed ?? randomBytes(6).readUIntLE(0, 6)),
      kvBytesPerToken: options.profile.kvBytesPerToken,
      tellsCachedTokens: options.tellsCachedTokens,
    },
    model: options.model,
    contextTokensMax: options.contextTokensMax,
    fingerprint: systemFingerprint(options),
    onDeath: die,
  });
  return { desk, puller };
}

function createModel(options: EngineSimOptions): EngineModel {
  return new EngineModel({
    ...engineModelDefaults,
    profile: options.profile,
    cacheTokens: options.cacheTokens,
    blockSizeTokens: options.blockSizeTokens,
    linkBytesPerSecond: options.linkBytesPerSecond,
    // Leases are wall time, and the model's time runs `speed` times as fast.
    leaseMs: options.leaseMs * options.speed,
    hashSeed: randomUUID(),
  });
}

async function openOutlet(
  { host, kvEvents }: EngineSimOptions,
  logger: Logger,
): Promise<EventOutlet | null> {
  if (kvEvents === null) return null;
  const { port, replayPort, topic } = kvEvents;
  return openEventOutlet({ host, port, replayPort, topic, logger });
}

function openSideChannel(parts: {
  readonly options: EngineSimOptions;
  readonly engineId: string;
  readonly model: EngineModel;
  readonly runtime: EngineRuntime;
}): Promise<SideChannel> {
  const { options, engineId, model, runtime } = parts;
  const { blockSizeTokens } = options;
  const blocks = model.cache.usableBlocks + 1;
  return SideChannel.listen(
    { host: options.host, port: options.sideChannelPort },
    {
      facts: { engineId, blocks, blockSizeTokens },
      read: (blockIds) => model.cache.readContents(blockIds),
      done: (requestId) => runtime.releaseExport(requestId),
      heartbeat: (requestIds) => runtime.heartbeat(requestIds),
    },
  );
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeIdleConnections();
  });
}

/** Resolves when `work` does, or after `ms`. */
async function withDeadline(work: Promise<void>, ms: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([work, late]);
  clearTimeout(timer);
}
