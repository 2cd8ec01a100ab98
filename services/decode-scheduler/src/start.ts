import type { BatonError } from "@baton/domain";
import { type Outcome, ok } from "@baton/kit";
import { engineProfiles } from "@baton/perf-model";
import { createMetrics, type RunningService, type ServiceContext } from "@baton/service-host";
import {
  openBus,
  openEngineClient,
  poolSettingsOf,
  processIdentity,
  serveSchedulerAdmin,
} from "@baton/service-wiring";
import type { z } from "zod";
import type { configSchema } from "./config.ts";
import { createDecodeScheduler } from "./decode-scheduler.ts";
import { metricDefinitions } from "./metrics.ts";

/** Opens the ports of a decode-scheduler that is a process of its own, and starts it. */
export async function startDecodeScheduler(
  context: ServiceContext<z.infer<typeof configSchema>>,
): Promise<Outcome<RunningService, BatonError>> {
  const { config, logger, clock, timers, stopping } = context;
  const { id, seed } = processIdentity("decode-scheduler");
  const engineClient = openEngineClient(config.engine, logger);
  if (!engineClient.ok) return engineClient;
  const bus = await openBus(config.bus, "decode-scheduler", { logger, signal: stopping });
  if (!bus.ok) {
    await engineClient.value.close();
    return bus;
  }
  const metrics = createMetrics(metricDefinitions, {
    defaultLabels: { service: "decode-scheduler" },
  });
  const scheduler = createDecodeScheduler(
    {
      ...poolSettingsOf(config, "decode", id),
      ...config.decode,
      policy: config.placement.policy,
      profile: engineProfiles[config.placement.profile]!,
      seed,
    },
    {
      clock,
      timers,
      logger,
      metrics,
      bus: bus.value,
      engineClient: engineClient.value,
      kvEventSource: null,
    },
  );
  const close = async () => {
    await scheduler.drain();
    await engineClient.value.close();
  };
  const admin = await serveSchedulerAdmin(config.admin, scheduler, { metrics, logger });
  if (!admin.ok) {
    await close();
    return admin;
  }
  await scheduler.start();
  logger.info({ admin: admin.value.url, model: config.model }, "decode-scheduler is up");
  return ok({
    async drain() {
      await close();
      await admin.value.close();
    },
  });
}
