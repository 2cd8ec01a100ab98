export {
  type ApplyResult,
  type IndexStats,
  noOverlap,
  PrefixIndex,
  type WorkerOverlap,
} from "./prefix-index.ts";
export { weightedTokens } from "./score.ts";
