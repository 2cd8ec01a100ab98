export {
  type AdminOptions,
  type AdminServer,
  listenError,
  readiness,
  serveAdmin,
} from "./admin-server.ts";
export { configJsonSchema, renderConfigDoc } from "./config-doc.ts";
export { field, secret } from "./config-field.ts";
export { type ConfigSources, type Frozen, type LoadedConfig, loadConfig } from "./config-load.ts";
export { changedConfig, printConfig } from "./config-print.ts";
export {
  type ConfigOrigin,
  type ConfigProblem,
  configError,
  originText,
  problemText,
} from "./config-problem.ts";
export {
  exitCodeOf,
  exitConfig,
  exitCrash,
  exitData,
  exitDrainCut,
  exitOk,
  exitSystem,
  exitUnavailable,
} from "./exit-code.ts";
export { type HostConfig, hostSections } from "./host-config.ts";
export type { HostProcess } from "./host-process.ts";
export { checkListenAddress, isLoopback } from "./listen-address.ts";
export { createLogger, type HostLogger, type LoggerOptions, type LogLevel } from "./logger.ts";
export { metricUnits } from "./metric-name.ts";
export {
  createMetrics,
  type MetricsOptions,
  type MetricsText,
  metricsContentType,
  type ServiceMetrics,
  selfMetricDefinitions,
} from "./metrics.ts";
export { renderMetricsDoc } from "./metrics-doc.ts";
export { joinMetrics } from "./metrics-join.ts";
export { createProcessMetrics, processMetricDefinitions } from "./process-metrics.ts";
export {
  errorText,
  type RunningService,
  runService,
  type ServiceContext,
  type ServiceOptions,
} from "./run-service.ts";
export { readSecretFile, type SecretFile } from "./secret-file.ts";
export { maskText } from "./secret-mask.ts";
export { systemClock } from "./system-clock.ts";
export { systemTimers } from "./system-timers.ts";
