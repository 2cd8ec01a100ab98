export {
  createTokenizer,
  type EngineTokenizerOptions,
  type LocalTokenizerOptions,
  type TokenizerOptions,
  tokenizerDefaults,
} from "./create-tokenizer.ts";
export type { FetchTokenize } from "./engine-tokenizer.ts";
