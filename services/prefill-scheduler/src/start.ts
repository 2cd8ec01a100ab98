import type { BatonError } from "@baton/domain";
import { type Outcome, ok } from "@baton/kit";
import { createZmqKvEventSource } from "@baton/kv-feed";
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
import { metricDefinitions } from "./metrics.ts";
import { createPrefillScheduler } from "./prefill-scheduler.ts";

/** Opens the ports of a prefill-scheduler that is a process of its own, and starts it. */
export async function startPrefillScheduler(
  context: ServiceContext<z.infer<typeof configSchema>>,
): Promise<Outcome<RunningService, BatonError>> {
  const { config, logger, clock, timers, stopping } = context;
  const { id, seed } = processIdentity("prefill-scheduler");
  const engineClient = openEngineClient(config.engine, logger);
  if (!engineClient.ok) return engineClient;
  const bus = await openBus(config.bus, "prefill-scheduler", { logger, signal: stopping });
  if (!bus.ok) {
    await engineClient.value.close();
    return bus;
  }
  const metrics = createMetrics(metricDefinitions, {
    defaultLabels: { service: "prefill-scheduler" },
  });
  const kvEventSource = createZmqKvEventSource({ clock, timers, logger });
  const { tierWeightGpu: gpu, tierWeightHost: host, tierWeightDisk: disk } = config.prefill;
  const scheduler = createPrefillScheduler(
    {
      ...poolSettingsOf(config, "prefill", id),
      policy: config.placement.policy,
      coefficients: engineProfiles[config.placement.profile]!.prefill,
      tierWeights: { gpu, host, disk },
      waitMsMax: config.prefill.waitMsMax,
      seed,
    },
    {
      clock,
      timers,
      logger,
      metrics,
      bus: bus.value,
      engineClient: engineClient.value,
      kvEventSource,
    },
  );
  const close = async () => {
    await scheduler.drain();
    await kvEventSource.close();
    await engineClient.value.close();
  };
  const admin = await serveSchedulerAdmin(config.admin, scheduler, { metrics, logger });
  if (!admin.ok) {
    await close();
    return admin;
  }
  await scheduler.start();
  logger.info({ admin: admin.value.url, model: config.model }, "prefill-scheduler is up");
  return ok({
    async drain() {
      await close();
      await admin.value.close();
    },
  });
}
