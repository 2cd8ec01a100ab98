import { randomUUID } from "node:crypto";
import { type BatonError, batonError } from "@baton/domain";
import { type FrontendServer, serveFrontend } from "@baton/http-edge";
import { fail, type Outcome, ok } from "@baton/kit";
import type { Bus, EngineClient, Logger, Tokenizer } from "@baton/ports";
import {
  checkListenAddress,
  createMetrics,
  createProcessMetrics,
  type Frozen,
  joinMetrics,
  type RunningService,
  type ServiceContext,
} from "@baton/service-host";
import { openBus, openEngineClient, processIdentity } from "@baton/service-wiring";
import { createTokenizer } from "@baton/tokenization";
import type { z } from "zod";
import { readApiKeysFile } from "./api-keys-file.ts";
import type { configSchema } from "./config.ts";
import { createEngineTokenizer } from "./engine-tokenizer.ts";
import { createFrontend, type Frontend } from "./frontend.ts";
import { metricDefinitions } from "./metrics.ts";

type Config = Frozen<z.infer<typeof configSchema>>;
type Context = ServiceContext<z.infer<typeof configSchema>>;

export interface OpenedFrontend {
  readonly frontend: Frontend;
  readonly server: FrontendServer;
  drain(deadlineMs: number): Promise<void>;
}

/** A frontend on ports that its caller opened, with its HTTP server; laptop mode uses it too. */
export async function openFrontend(
  config: Omit<Config, "bus" | "shutdown" | "log">,
  context: Pick<Context, "clock" | "timers" | "logger">,
  opened: { readonly bus: Bus; readonly engineClient: EngineClient },
): Promise<Outcome<OpenedFrontend, BatonError>> {
  const { logger } = context;
  const address = checkListenAddress({
    host: config.http.host,
    hasKeys: config.http.apiKeysFile !== null,
    insecure: config.http.insecure,
    keyName: "http.apiKeysFile",
    insecureName: "http.insecure: true (or --insecure)",
  });
  if (!address.ok) return address;
  const keys = config.http.apiKeysFile === null ? null : readApiKeysFile(config.http.apiKeysFile);
  if (keys !== null && !keys.ok) return keys;
  let frontend: Frontend | null = null;
  const tokenizer = await openTokenizer(
    config.tokenizer,
    opened.engineClient,
    logger,
    () => frontend!,
  );
  if (!tokenizer.ok) return tokenizer;
  const metrics = createMetrics(metricDefinitions, { defaultLabels: { service: "frontend" } });
  const processMetrics = createProcessMetrics();
  const joined = joinMetrics([metrics, processMetrics]);
  const { id, seed } = processIdentity("frontend");
  frontend = createFrontend(
    {
      frontendId: id,
      incarnation: String(seed),
      tokenizerMode: config.tokenizer.mode,
      requestsLiveMax: config.http.requestsLiveMax,
      ...config.request,
      headersTimeoutMs: config.engine.headersTimeoutMs,
      bodyTimeoutMs: config.engine.bodyTimeoutMs,
    },
    { ...context, ...opened, metrics, tokenizer: tokenizer.value },
  );
  const server = await serveFrontend({
    api: frontend,
    host: config.http.host,
    port: config.http.port,
    bodyLimitBytes: config.http.bodyLimitBytes,
    apiKeys: keys === null ? null : keys.value,
    metricsText: () => joined.text(),
    logger,
    requestId: randomUUID,
  });
  if (!server.ok) {
    processMetrics.close();
    await tokenizer.value.close();
    return server;
  }
  await frontend.start();
  const running = frontend;
  return ok({
    frontend: running,
    server: server.value,
    async drain(deadlineMs) {
      await Promise.all([server.value.close(deadlineMs), running.drain(deadlineMs)]);
      processMetrics.close();
      await tokenizer.value.close();
    },
  });
}

/** Opens the ports of a frontend that is a process of its own, and starts it. */
export async function startFrontend(
  context: Context,
): Promise<Outcome<RunningService, BatonError>> {
  const { config, logger, stopping } = context;
  const engineClient = openEngineClient(config.engine, logger);
  if (!engineClient.ok) return engineClient;
  const bus = await openBus(config.bus, "frontend", { logger, signal: stopping });
  if (!bus.ok) {
    await engineClient.value.close();
    return bus;
  }
  const opened = { bus: bus.value, engineClient: engineClient.value };
  const frontend = await openFrontend(config, context, opened);
  if (!frontend.ok) {
    await bus.value.drain();
    await engineClient.value.close();
    return frontend;
  }
  logger.info({ url: frontend.value.server.url }, "frontend is up");
  return ok({
    async drain(deadlineMs) {
      await frontend.value.drain(deadlineMs);
      await engineClient.value.close();
    },
  });
}

async function openTokenizer(
  config: Config["tokenizer"],
  engineClient: EngineClient,
  logger: Logger,
  frontend: () => Frontend,
): Promise<Outcome<Tokenizer, BatonError>> {
  switch (config.mode) {
    case "none":
      logger.warn({}, "tokenizer off: prompts given as text are placed without overlap knowledge");
      return createTokenizer({ mode: "none" });
    case "engine": {
      const directory = () => frontend().directory;
      const fetchTokenize = createEngineTokenizer(directory, engineClient, config.timeoutMs);
      return createTokenizer({ mode: "engine", fetchTokenize });
    }
    case "local": {
      if (config.folder === null) {
        const message =
          "tokenizer.folder is missing: mode local needs a folder with tokenizer.json";
        return fail(batonError("BATON_CONFIG_INVALID", message));
      }
      const { folder, threads, timeoutMs: jobTimeoutMs } = config;
      return createTokenizer({ mode: "local", folder, threads, jobTimeoutMs, logger });
    }
  }
}
