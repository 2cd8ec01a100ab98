export { DecisionLog } from "./decision-log.ts";
export { FrontendBeats, ownerOf } from "./frontend-beats.ts";
export { schedulerMetricDefinitions } from "./scheduler-metrics.ts";
export {
  type PoolSettings,
  type SchedulerPool,
  type SchedulerPorts,
  SchedulerShell,
  type WorkerSettings,
} from "./scheduler-shell.ts";
