import type { LegEdit } from "./connector.ts";

/**
 * The prefill leg answers whole, with one token that nobody reads.
 * - `min_tokens` above 1 contradicts it, and `stream_options` needs `stream`: engines answer 400.
 * - An end of sequence or a stop text in that token would end the request as `stop`, and vLLM hands
 *   its blocks over only when the request ended by length: so no stops, and `ignore_eos`.
 * - Log probabilities of a token that nobody reads are work for nothing.
 */
const removed = [
  "stream",
  "stream_options",
  "max_tokens",
  "max_completion_tokens",
  "min_tokens",
  "stop",
  "stop_token_ids",
  "ignore_eos",
  "logprobs",
  "top_logprobs",
] as const;

export function prefillLegEdit(route: "chat" | "completions", extra: LegEdit): LegEdit {
  return {
    remove: [...removed, ...extra.remove],
    append: [
      { key: "stream", json: "false" },
      { key: "max_tokens", json: "1" },
      ...(route === "chat" ? [{ key: "max_completion_tokens", json: "1" }] : []),
      { key: "ignore_eos", json: "true" },
      ...extra.append,
    ],
  };
}
