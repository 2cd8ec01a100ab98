import { advanceContent, contentRoot, contentWord } from "./content-digest.ts";

/** Ids below it are text pieces; the tokenizer's special tokens lie above. */
export const textTokenIds = 151_643;

/** Ids at or above it are refused, as an engine refuses what its embedding table lacks. */
export const vocabularySize = 151_936;

/** Id of a text piece. Many pieces share an id: nothing here needs the way back. */
export function pieceTokenId(piece: string): number {
  let hash = 0x811c_9dc5;
  for (let at = 0; at < piece.length; at++) {
    hash = Math.imul(hash ^ piece.charCodeAt(at), 0x0100_0193);
  }
  hash ^= hash >>> 16;
  hash = Math.imul(hash, 0x85eb_ca6b);
  return ((hash ^ (hash >>> 13)) >>> 0) % textTokenIds;
}

/**
 * Text of output token `index` of a request whose prompt KV has this digest: ` t<index>.<4 hex>`.
 * A lost, doubled or reordered token shows in the index, wrong KV in the hex digits.
 */
export function outputTokenText(low: number, high: number, index: number): string {
  const word = contentWord(low, high, index) & 0xffff;
  return ` t${index}.${word.toString(16).padStart(4, "0")}`;
}

export interface ExpectedTokens {
  readonly tokenIds: Uint32Array;
  readonly texts: readonly string[];
}

/** The only right answer to a prompt: what an engine emits whose KV is that of `promptIds`. */
export function expectedTokens(promptIds: Uint32Array, count: number): ExpectedTokens {
  const state = Uint32Array.from(contentRoot);
  advanceContent(state, promptIds, 0, promptIds.length);
  const texts: string[] = [];
  const tokenIds = new Uint32Array(count);
  for (let index = 0; index < count; index++) {
    const text = outputTokenText(state[0]!, state[1]!, index);
    texts.push(text);
    tokenIds[index] = pieceTokenId(text);
  }
  return { tokenIds, texts };
}
