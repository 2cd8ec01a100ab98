export { aggregated } from "./aggregated.ts";
export type { AnswerFacts, Connector, HandleFacts, LegEdit } from "./connector.ts";
export { nixlPull } from "./nixl-pull.ts";
export { prefillLegEdit } from "./prefill-leg.ts";
export { connectorNamed, connectorNames } from "./registry.ts";
