import { pieceTokenId } from "@baton/engine-model";

/** Ids as in Qwen's vocabulary, so that a reader of a dump sees familiar borders. */
const specialTokens = new Map([
  ["<|im_start|>", 151_644],
  ["<|im_end|>", 151_645],
]);

/**
 * Pieces: a special token; an output token of this engine (` t12.3fa9`), so that an answer that comes
 * back as history has the ids it was generated with; a word with the blank before it, cut after
 * eight letters; up to three digits; one other sign with the blank before it; a run of white space but for the blank
 * that goes with the piece behind it.
 */
const pieces =
  /<\|im_start\|>|<\|im_end\|>| t\d+\.[0-9a-f]{4}| ?\p{L}{1,8}|\p{N}{1,3}| ?[^\s\p{L}\p{N}]|\s+(?!\S)|\s/gu;

export interface TokenizedText {
  readonly tokenIds: Uint32Array;
  /** The pieces; joined they are the text again. */
  readonly tokenTexts: readonly string[];
}

/**
 * The simulated model's tokenizer: deterministic, the same in every process, about four characters
 * a token on English text. A piece's id is a hash of it, so ids cannot be turned back into text.
 */
export function tokenizeText(text: string): TokenizedText {
  const tokenTexts = text.match(pieces) ?? [];
  const tokenIds = new Uint32Array(tokenTexts.length);
  tokenTexts.forEach((piece, at) => {
    tokenIds[at] = specialTokens.get(piece) ?? pieceTokenId(piece);
  });
  return { tokenIds, tokenTexts };
}

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

/**
 * The simulated model's chat template (ChatML): each message between <|im_start|> and <|im_end|>,
 * tools as JSON in front of the first message, the assistant's turn opened at the end.
 */
export function renderChat(
  messages: readonly ChatMessage[],
  tools: readonly unknown[],
  opensAnswer = true,
): string {
  let text = tools.length === 0 ? "" : `<|im_start|>tools\n${JSON.stringify(tools)}<|im_end|>\n`;
  for (const { role, content } of messages) {
    text += `<|im_start|>${role}\n${content}<|im_end|>\n`;
  }
  return opensAnswer ? `${text}<|im_start|>assistant\n` : text;
}

/** Not the way back, which hashing lost: a stand-in of the same length in tokens. */
export function detokenize(tokenIds: readonly number[]): string {
  return tokenIds.map((tokenId) => ` #${tokenId}`).join("");
}
