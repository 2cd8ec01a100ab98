export { configSchema } from "./config.ts";
export {
  createDecodeScheduler,
  type DecodeSchedulerConfig,
  type DecodeSchedulerPorts,
  type Scheduler,
} from "./decode-scheduler.ts";
export { metricDefinitions } from "./metrics.ts";
export { startDecodeScheduler } from "./start.ts";
