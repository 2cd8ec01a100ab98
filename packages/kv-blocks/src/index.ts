export {
  type BlockExtras,
  extendBlockHashes,
  hashBlocks,
  hashesPerPlanMax,
} from "./hash-blocks.ts";
export { indexBlockSizeTokens, indexBlockTokensMin } from "./index-block.ts";
export { type HashNamespace, namespaceRoot } from "./namespace.ts";
