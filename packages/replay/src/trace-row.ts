/** Tokens per `hash_ids` entry of a Mooncake trace. */
export const traceBlockTokens = 512;

/** One request of a trace. */
export interface TraceRow {
  /** Line in its file, from 1. */
  readonly line: number;
  /** From the trace's start. */
  readonly timestampMs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /**
   * One id per block of `traceBlockTokens`, the last block perhaps partial. An id covers its block
   * and everything before it: equal ids mean equal prefixes.
   */
  readonly hashIds: readonly number[];
  /** Rows of one session are turns of one conversation. */
  readonly sessionId: string | null;
  /** From the end of the session's previous turn to this one; for closed loops. */
  readonly delayMs: number | null;
}
