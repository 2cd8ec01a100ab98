export type {
  CandidateRecord,
  DecisionRecord,
  DecisionTerm,
  TermUnit,
} from "./decision.ts";
export {
  type BatonError,
  batonError,
  type ErrorCode,
  type ErrorSource,
  errorCatalogue,
} from "./errors.ts";
export type { KvBatch, KvEvent, KvFeedState } from "./kv-event.ts";
export { type Tier, type TierCounts, type TierWeights, tiers, tierWeightsFixed } from "./tier.ts";
export {
  type EngineDialect,
  type Pool,
  sameWorker,
  type WorkerAddress,
  type WorkerIdentity,
  type WorkerRole,
  workerKey,
} from "./worker.ts";
