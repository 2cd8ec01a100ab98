/**
 * Headers pass by allow-list in both directions. What is not named here stays behind: credentials,
 * cookies, hop-by-hop and entity headers, and all that steers an engine or a peer
 * (x-data-parallel-rank, x-override-*, x-prefiller-*, x-vllm-priority, the client's x-request-id).
 */
const forwarded = ["accept", "traceparent", "tracestate", "baggage", "x-session-id"] as const;

const relayed = ["content-type", "content-encoding", "cache-control", "retry-after"] as const;

/** Of a stream that starts before an engine's head is known; the last line is for nginx. */
export const streamHeaders: Readonly<Record<string, string>> = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  "x-accel-buffering": "no",
};

export type HeaderRecord = Readonly<Record<string, string | undefined>>;

/** Client to engine, names in lower case; the caller adds its own x-request-id and ranks. */
export function forwardHeaders(headers: HeaderRecord): Record<string, string> {
  return { ...pick(headers, forwarded), "content-type": "application/json" };
}

/** Engine to client. Length and framing are made anew, since bodies may be rewritten. */
export function relayHeaders(engineHeaders: HeaderRecord): Record<string, string> {
  return pick(engineHeaders, relayed);
}

function pick(headers: HeaderRecord, names: readonly string[]): Record<string, string> {
  const picked: Record<string, string> = {};
  for (const name of names) {
    const value = headers[name];
    if (value !== undefined) picked[name] = value;
  }
  return picked;
}
