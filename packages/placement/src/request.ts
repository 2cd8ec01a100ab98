import type { HashList } from "@baton/kit";

/** The prompt's hashes for one index block size. */
export interface HashSet {
  readonly blockSizeTokens: number;
  readonly hashes: HashList;
}

export interface AttemptKey {
  readonly requestId: string;
  readonly attempt: number;
}

/** Key of every lease of one attempt; an attempt number in it keeps late messages of an earlier one off. */
export function attemptKey(key: AttemptKey): string {
  return `${key.requestId}#${key.attempt}`;
}

/** Time and chance of one decision, handed in so that it can be repeated. */
export interface Moment {
  readonly nowMs: number;
  readonly wallMs: number;
  /** Uniform in [0, 1). */
  readonly tieDraw: number;
}

/** Text without a tokenizer: about four bytes a token. It sizes work; overlap stays unknown. */
const bytesPerTokenGuess = 4;

export function tokensOrGuess(promptTokens: number | null, promptBytes: number): number {
  return promptTokens ?? Math.max(1, Math.ceil(promptBytes / bytesPerTokenGuess));
}
