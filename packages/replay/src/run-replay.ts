import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { invariant } from "@baton/kit";
import { completionBody } from "./completion-body.ts";
import type { ReplayProgress, ReplayRun } from "./replay-tally.ts";
import { ReplayTally } from "./replay-tally.ts";
import { type CompletionTarget, sendCompletion } from "./send-completion.ts";
import type { CompletionRequest } from "./streamed-answer.ts";
import { type SynthesisOptions, synthesizeTokens } from "./synthesize-tokens.ts";
import type { TraceRow } from "./trace-row.ts";

/**
 * `openLoop`: every row at its time, whatever the answers do. `closedLoop`: `concurrency` requests
 * at a time, in order; a turn of a session waits for the end of the one before, and its delay.
 */
export type ReplayMode =
  | { readonly kind: "openLoop" }
  | { readonly kind: "closedLoop"; readonly concurrency: number };

export interface ReplayOptions extends SynthesisOptions {
  /** Base URL; `/v1/completions` is added. */
  readonly url: string;
  readonly rows: readonly TraceRow[];
  readonly model: string;
  readonly mode: ReplayMode;
  /** Trace seconds per wall second. Times in the results are trace times: wall times × speed. */
  readonly speed: number;
  readonly apiKey: string | null;
  /** The one right text of an answer; null when any text is right. */
  readonly expectedText: ((promptIds: Uint32Array, count: number) => string) | null;
  /** Of one request, on the wall clock. */
  readonly requestTimeoutMs: number;
  /** About every quarter of a second, and at the end. */
  readonly onProgress: (progress: ReplayProgress) => void;
  /** Stops sending and breaks off what runs; rows without an end are ABORTED. */
  readonly signal: AbortSignal;
}

const progressIntervalMs = 250;

/** Sends the rows as streaming completions over their token ids. Resolves when the last has ended. */
export async function runReplay(options: ReplayOptions): Promise<ReplayRun> {
  invariant(options.speed > 0, "speed is positive");
  const url = new URL(`${options.url.replace(/\/$/, "")}/v1/completions`);
  const Agent = url.protocol === "https:" ? HttpsAgent : HttpAgent;
  const agent = new Agent({ keepAlive: true, maxFreeSockets: 1_024 });
  const { apiKey, signal, requestTimeoutMs: timeoutMs } = options;
  const target: CompletionTarget = { url, agent, apiKey, timeoutMs, signal };
  const tally = new ReplayTally(options.rows, options.speed, performance.now());
  const tell = (isOver: boolean) => {
    options.onProgress({ ...tally.progress(performance.now()), isOver });
  };
  const timer = setInterval(tell, progressIntervalMs, false);
  try {
    if (options.mode.kind === "openLoop") await openLoop(options, target, tally);
    else await closedLoop(options, options.mode.concurrency, target, tally);
  } finally {
    clearInterval(timer);
    agent.destroy();
  }
  tell(true);
  return tally.run(performance.now());
}

async function openLoop(
  options: ReplayOptions,
  target: CompletionTarget,
  tally: ReplayTally,
): Promise<void> {
  const startMs = performance.now();
  const running: Promise<void>[] = [];
  for (const [index, row] of options.rows.entries()) {
    if (options.signal.aborted) break;
    // Made before its time comes: only the sending itself is late.
    const request = makeRequest(options, row);
    const dueMs = startMs + (row.timestampMs - options.rows[0]!.timestampMs) / options.speed;
    await sleepUntil(dueMs, options.signal);
    running.push(exchange(index, request, target, tally, performance.now() - dueMs));
  }
  await Promise.all(running);
}

async function closedLoop(
  options: ReplayOptions,
  concurrency: number,
  target: CompletionTarget,
  tally: ReplayTally,
): Promise<void> {
  invariant(concurrency > 0, "concurrency is positive");
  /** End of the last turn begun, per session. */
  const turns = new Map<string, Promise<void>>();
  let next = 0;
  const lane = async () => {
    for (;;) {
      const index = next++;
      const row = options.rows[index];
      if (row === undefined || options.signal.aborted) return;
      const before = row.sessionId === null ? undefined : turns.get(row.sessionId);
      const turn = (async () => {
        const request = makeRequest(options, row);
        await before;
        const delayMs = before === undefined ? 0 : (row.delayMs ?? 0) / options.speed;
        const dueMs = performance.now() + delayMs;
        await sleepUntil(dueMs, options.signal);
        await exchange(index, request, target, tally, performance.now() - dueMs);
      })();
      if (row.sessionId !== null) turns.set(row.sessionId, turn);
      await turn;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, lane));
}

function makeRequest(options: ReplayOptions, row: TraceRow): CompletionRequest {
  const promptIds = synthesizeTokens(row, options);
  const { model, expectedText } = options;
  return {
    body: completionBody({ model, promptIds, tokensMax: row.outputTokens }),
    outputTokens: row.outputTokens,
    expectedText: expectedText === null ? null : expectedText(promptIds, row.outputTokens),
  };
}

async function exchange(
  index: number,
  request: CompletionRequest,
  target: CompletionTarget,
  tally: ReplayTally,
  latenessMs: number,
): Promise<void> {
  tally.sent(latenessMs);
  tally.ended(index, await sendCompletion(target, request));
}

/**
 * Ends when the time comes or the signal fires; when it is over, after one turn of the event loop, so
 * that a burst of rows does not hold up the sockets.
 */
function sleepUntil(dueMs: number, signal: AbortSignal): Promise<void> {
  const delayMs = dueMs - performance.now();
  if (delayMs <= 0 || signal.aborted) return new Promise((resolve) => setImmediate(resolve));
  return new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", wake);
      resolve();
    };
    const timer = setTimeout(wake, delayMs);
    signal.addEventListener("abort", wake);
  });
}
