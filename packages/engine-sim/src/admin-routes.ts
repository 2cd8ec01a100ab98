import { createHash } from "node:crypto";
import { fail, type Outcome, ok } from "@baton/kit";
import { type ApiError, badRequest, badValue } from "./api-error.ts";
import { readMessages } from "./generation-request.ts";
import type { EngineSimOptions } from "./options.ts";
import { detokenize, renderChat, tokenizeText } from "./tokenizer.ts";

export const engineVersion = "0.32.0";

/** Equal for engines that may serve one pair: same version, model, layout and context. */
export function systemFingerprint(options: EngineSimOptions): string {
  const facts = [
    options.model,
    options.profile.name,
    options.blockSizeTokens,
    options.contextTokensMax,
  ];
  const digest = createHash("sha256").update(JSON.stringify(facts)).digest("hex");
  return `vllm-${engineVersion}-${digest.slice(0, 8)}`;
}

export function modelsBody(options: EngineSimOptions, createdS: number): string {
  return JSON.stringify({
    object: "list",
    data: [
      {
        id: options.model,
        object: "model",
        created: createdS,
        owned_by: "vllm",
        root: options.model,
        parent: null,
        max_model_len: options.contextTokensMax,
        permission: [
          {
            id: "modelperm-0000000000000000",
            object: "model_permission",
            created: createdS,
            allow_create_engine: false,
            allow_sampling: true,
            allow_logprobs: true,
            allow_search_indices: false,
            allow_view: true,
            allow_fine_tuning: false,
            organization: "*",
            group: null,
            is_blocking: false,
          },
        ],
      },
    ],
  });
}

export interface EventSource {
  readonly endpoint: string;
  readonly replayEndpoint: string;
  readonly topic: string;
}

/** One entry per data-parallel rank. */
export function kvEventSourcesBody(source: EventSource | null): string {
  if (source === null) return "{}";
  return JSON.stringify({
    "0": {
      enable_kv_cache_events: true,
      publisher: "zmq",
      endpoint: source.endpoint,
      replay_endpoint: source.replayEndpoint,
      buffer_steps: 10_000,
      hwm: 100_000,
      max_queue_size: 100_000,
      topic: source.topic,
    },
  });
}

type Body = Readonly<Record<string, unknown>>;

/** A prompt or messages to token ids. */
export function tokenizeBody(body: Body, contextTokensMax: number): Outcome<string, ApiError> {
  let text: string;
  if (typeof body["prompt"] === "string") text = body["prompt"];
  else {
    const messages = readMessages(body["messages"]);
    if (!messages.ok) return messages;
    const tools = Array.isArray(body["tools"]) ? body["tools"] : [];
    text = renderChat(messages.value, tools, body["add_generation_prompt"] !== false);
  }
  const { tokenIds, tokenTexts } = tokenizeText(text);
  const texts = body["return_token_strs"] === true ? tokenTexts : null;
  return ok(
    JSON.stringify({
      count: tokenIds.length,
      max_model_len: contextTokensMax,
      tokens: [...tokenIds],
      token_strs: texts,
    }),
  );
}

export function detokenizeBody(body: Body): Outcome<string, ApiError> {
  const { tokens } = body;
  if (!Array.isArray(tokens)) return fail(badValue("tokens must be a list of ids.", "tokens"));
  if (!tokens.every((id) => Number.isInteger(id))) return fail(badRequest("Bad token id"));
  return ok(JSON.stringify({ prompt: detokenize(tokens as number[]) }));
}
