export { DecisionLog } from "./decision-log.ts";
export { FrontendBeats, ownerOf } from "./frontend-beats.ts";
export type {
  PoolSettings,
  SchedulerPool,
  SchedulerPorts,
  WorkerSettings,
} from "./pool-settings.ts";
export { schedulerMetricDefinitions } from "./scheduler-metrics.ts";
export { SchedulerShell } from "./scheduler-shell.ts";
