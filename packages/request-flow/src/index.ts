export type { FlowEffect, FlowEvent, Offer, Plan, StageReport } from "./flow-messages.ts";
export { type FlowOptions, type FlowState, RequestFlow } from "./request-flow.ts";
