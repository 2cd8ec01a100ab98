import { Prng } from "@baton/kit";
import { type TraceRow, traceBlockTokens } from "./trace-row.ts";

interface Conversation {
  hashIds: readonly number[];
  inputTokens: number;
  outputTokens: number;
}

const gapMsMean = 400;
const followUpShare = 0.5;
const systemHashId = 0;

/**
 * A trace for a first try, made of what real ones show: one system prompt that all rows start with,
 * conversations that come back with their history and some more, and prompts that never return.
 * `rows` requests at 2.5 a second, 0.7 to 8 K tokens in, 10 to 100 out. Same seed, same trace.
 */
export function generateTrace(options: {
  readonly rows: number;
  readonly seed: number;
}): TraceRow[] {
  const random = new Prng(options.seed);
  const conversations: Conversation[] = [];
  let hashIdNext = systemHashId + 1;
  let timestampMs = 0;
  const rows: TraceRow[] = [];
  for (let line = 1; line <= options.rows; line++) {
    const isFollowUp = conversations.length > 0 && random.next() < followUpShare;
    const before = isFollowUp ? conversations[random.below(conversations.length)]! : null;
    // What was answered is part of the next prompt; then comes what the user adds.
    const inputTokens = before
      ? before.inputTokens + before.outputTokens + 20 + random.below(400)
      : traceBlockTokens + 200 + random.below(3_000);
    const outputTokens = 10 + random.below(91);
    // A partial last block has other tokens in the longer prompt, and so another id.
    const known = before?.hashIds.slice(0, Math.floor(before.inputTokens / traceBlockTokens));
    const hashIds = [...(known ?? [systemHashId])];
    while (hashIds.length * traceBlockTokens < inputTokens) hashIds.push(hashIdNext++);
    const turn = { hashIds, inputTokens, outputTokens };
    if (before) Object.assign(before, turn);
    else if (random.next() < 0.6) conversations.push(turn);
    rows.push({ line, timestampMs, ...turn, sessionId: null, delayMs: null });
    timestampMs += Math.round(-Math.log(1 - random.next()) * gapMsMean);
  }
  return rows;
}
