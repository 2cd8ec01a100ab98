export { contentWordsPerBlock } from "./block-contents.ts";
export type { CacheSequence } from "./cache-sequence.ts";
export { type EngineModelConfig, engineModelDefaults } from "./engine-config.ts";
export type { EngineCounters } from "./engine-counters.ts";
export { EngineModel } from "./engine-model.ts";
export type { EngineRequest, Happening } from "./engine-request.ts";
export {
  type ExpectedTokens,
  expectedTokens,
  pieceTokenId,
  textTokenIds,
  vocabularySize,
} from "./output-token.ts";
export { PagedCache, type PagedCacheOptions } from "./paged-cache.ts";
export {
  type EngineProfile,
  engineProfileNameDefault,
  engineProfiles,
  findEngineProfile,
} from "./profiles.ts";
export { type PrefillChunk, prefillMs, type StepLoad, stepMs } from "./step-time.ts";
export { TransferLink, type TransferLinkOptions } from "./transfer-link.ts";
