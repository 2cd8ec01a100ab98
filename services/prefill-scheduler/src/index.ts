export { configSchema } from "./config.ts";
export { metricDefinitions } from "./metrics.ts";
export {
  createPrefillScheduler,
  type PrefillSchedulerConfig,
  type PrefillSchedulerPorts,
  type Scheduler,
} from "./prefill-scheduler.ts";
export { startPrefillScheduler } from "./start.ts";
