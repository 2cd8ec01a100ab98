export { configSchema } from "./config.ts";
export { createEngineTokenizer } from "./engine-tokenizer.ts";
export { createFrontend, type Frontend } from "./frontend.ts";
export { metricDefinitions } from "./metrics.ts";
export type { FrontendConfig, FrontendPorts } from "./settings.ts";
export { type OpenedFrontend, openFrontend, startFrontend } from "./start.ts";
