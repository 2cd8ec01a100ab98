export { type BusSettings, busSection, openBus } from "./bus-section.ts";
export { type EngineSettings, engineSection, openEngineClient } from "./engine-section.ts";
export { type BusService, natsUserOf } from "./nats-users.ts";
export { type PoolConfig, poolSections, poolSettingsOf } from "./pool-sections.ts";
export { processIdentity } from "./process-identity.ts";
export { readTextFile } from "./read-text-file.ts";
export { serveSchedulerAdmin } from "./scheduler-admin.ts";
