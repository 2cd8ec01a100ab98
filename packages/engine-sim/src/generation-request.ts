import { vocabularySize } from "@baton/engine-model";
import { fail, type Outcome, ok } from "@baton/kit";
import { type ApiError, badRequest, badValue, fieldError, unknownModel } from "./api-error.ts";
import { type RemoteKv, readRemoteKv, wantsExport } from "./remote-kv.ts";
import { type ChatMessage, renderChat, tokenizeText } from "./tokenizer.ts";

export type Route = "completions" | "chat";

/** A generation request that the engine accepts. */
export interface GenerationRequest {
  readonly route: Route;
  readonly prompts: readonly Uint32Array[];
  /** Answers per prompt. */
  readonly choices: number;
  /** Per prompt, already cut to what the context leaves. */
  readonly tokensMax: readonly number[];
  /** As asked for; null when the engine chose. */
  readonly tokensAsked: number | null;
  readonly finishReason: "length" | "stop";
  readonly isStream: boolean;
  readonly includesUsage: boolean;
  readonly continuousUsage: boolean;
  readonly returnsTokenIds: boolean;
  readonly cacheSalt: string | null;
  /** The prefill leg: keep the blocks for another engine. */
  readonly exportsKv: boolean;
  /** The decode leg's handle, whether or not it is any good; null when there is none. */
  readonly remote: RemoteKv | null;
}

export interface RequestLimits {
  readonly model: string;
  readonly contextTokensMax: number;
}

type Body = Readonly<Record<string, unknown>>;

const completionTokensDefault = 16;
const choicesMax = 128;

/** Validates in vLLM's order; the first problem is the answer. */
export function readGenerationRequest(
  route: Route,
  body: Body,
  limits: RequestLimits,
): Outcome<GenerationRequest, ApiError> {
  const early = checkFields(route, body, limits);
  if (early !== null) return fail(early);
  const prompts = route === "chat" ? chatPrompt(body) : completionPrompts(body);
  if (!prompts.ok) return prompts;
  for (const prompt of prompts.value) {
    const problem = checkPrompt(prompt, limits);
    if (problem !== null) return fail(problem);
  }
  const tokensAsked = tokenLimit(route, body);
  const isNatural = tokensAsked === null && body["ignore_eos"] !== true;
  const budgets = prompts.value.map((prompt) => {
    const room = limits.contextTokensMax - prompt.length;
    return { room, wanted: tokensAsked ?? (isNatural ? naturalLength(prompt, body) : room) };
  });
  const streamOptions = (body["stream_options"] ?? {}) as Body;
  return ok({
    route,
    prompts: prompts.value,
    choices: (body["n"] as number | null | undefined) ?? 1,
    tokensMax: budgets.map(({ room, wanted }) => Math.min(room, wanted)),
    tokensAsked,
    finishReason:
      isNatural && budgets.every(({ room, wanted }) => wanted <= room) ? "stop" : "length",
    isStream: body["stream"] === true,
    includesUsage: streamOptions["include_usage"] === true,
    continuousUsage: streamOptions["continuous_usage_stats"] === true,
    returnsTokenIds: body["return_token_ids"] === true,
    cacheSalt: (body["cache_salt"] as string | null | undefined) ?? null,
    exportsKv: wantsExport(body["kv_transfer_params"]),
    remote: readRemoteKv(body["kv_transfer_params"]),
  });
}

function checkFields(route: Route, body: Body, limits: RequestLimits): ApiError | null {
  const { model, stream, stream_options: streamOptions, n, cache_salt: salt } = body;
  if (model !== undefined && model !== null && model !== limits.model) {
    return unknownModel(String(model), limits.model);
  }
  if (streamOptions !== undefined && streamOptions !== null && stream !== true) {
    return badValue("Stream options can only be defined when `stream=True`.", "stream_options");
  }
  if (n !== undefined && n !== null && !isCount(n, 1, choicesMax)) {
    return badValue(`n must be between 1 and ${choicesMax}.`, "n");
  }
  if (salt !== undefined && salt !== null && (typeof salt !== "string" || salt === "")) {
    return badValue("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt");
  }
  return checkTokenLimits(route, body, limits);
}

function checkTokenLimits(route: Route, body: Body, limits: RequestLimits): ApiError | null {
  for (const name of ["max_tokens", "max_completion_tokens", "min_tokens"]) {
    const value = body[name];
    if (value === undefined || value === null) continue;
    if (!Number.isInteger(value)) {
      return fieldError("int_type", `body.${name}`, "Input should be a valid integer");
    }
    if ((value as number) < (name === "min_tokens" ? 0 : 1)) {
      return badValue(`${name} must be at least ${name === "min_tokens" ? 0 : 1}.`, name);
    }
  }
  const most = tokenLimit(route, body);
  const least = (body["min_tokens"] as number | null | undefined) ?? 0;
  if (most !== null && most > limits.contextTokensMax) {
    const text = `max_tokens=${most} cannot be greater than max_model_len=${limits.contextTokensMax}. Please request fewer output tokens.`;
    return badValue(text, "max_tokens", most);
  }
  if (most !== null && least > most) {
    return badRequest(`min_tokens must be less than or equal to max_tokens=${most}, got ${least}.`);
  }
  return null;
}

function tokenLimit(route: Route, body: Body): number | null {
  const plain = (body["max_tokens"] as number | null | undefined) ?? null;
  if (route === "completions") return plain ?? completionTokensDefault;
  return (body["max_completion_tokens"] as number | null | undefined) ?? plain;
}

function checkPrompt(prompt: Uint32Array, limits: RequestLimits): ApiError | null {
  if (prompt.length === 0) return missingPrompt();
  if (prompt.length >= limits.contextTokensMax) {
    const text = `This model's maximum context length is ${limits.contextTokensMax} tokens. However, your prompt contains ${prompt.length} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.`;
    return badValue(text, "input_tokens", prompt.length);
  }
  const unknown = prompt.find((tokenId) => tokenId >= vocabularySize);
  return unknown === undefined ? null : badRequest(`Token id ${unknown} is out of vocabulary`);
}

function missingPrompt(): ApiError {
  return badValue("Either prompt or prompt_embeds must be provided and non-empty.", "prompt");
}

/** A string, token ids, or a list of either. */
function completionPrompts(body: Body): Outcome<readonly Uint32Array[], ApiError> {
  const { prompt } = body;
  if (typeof prompt === "string") return ok([tokenizeText(prompt).tokenIds]);
  if (!Array.isArray(prompt) || prompt.length === 0) return fail(missingPrompt());
  const isOnePrompt = typeof prompt[0] === "number";
  const prompts: Uint32Array[] = [];
  for (const each of isOnePrompt ? [prompt] : prompt) {
    const ids = typeof each === "string" ? tokenizeText(each).tokenIds : tokenIds(each);
    if (ids === null) return badIds();
    prompts.push(ids);
  }
  return ok(prompts);
}

function badIds(): Outcome<never, ApiError> {
  return fail(fieldError("int_type", "body.prompt", "Input should be a valid integer"));
}

/** Null when it is not a list of token ids. */
function tokenIds(values: unknown): Uint32Array | null {
  if (!Array.isArray(values)) return null;
  const ids = new Uint32Array(values.length);
  for (let at = 0; at < values.length; at++) {
    const value: unknown = values[at];
    if (!isCount(value, 0, 0xffff_ffff)) return null;
    ids[at] = value;
  }
  return ids;
}

function chatPrompt(body: Body): Outcome<readonly Uint32Array[], ApiError> {
  const messages = readMessages(body["messages"]);
  if (!messages.ok) return messages;
  const tools = Array.isArray(body["tools"]) ? body["tools"] : [];
  return ok([tokenizeText(renderChat(messages.value, tools)).tokenIds]);
}

/** Text of the messages; parts that are not text count by their JSON. */
export function readMessages(messages: unknown): Outcome<readonly ChatMessage[], ApiError> {
  if (!Array.isArray(messages)) {
    return fail(fieldError("missing", "body.messages", "Field required"));
  }
  const read: ChatMessage[] = [];
  for (const message of messages) {
    const { role, content } = (message ?? {}) as Body;
    if (typeof role !== "string") {
      return fail(fieldError("missing", "body.messages.role", "Field required"));
    }
    const parts = Array.isArray(content) ? content : [content ?? ""];
    read.push({ role, content: parts.map(partText).join("") });
  }
  return ok(read);
}

function partText(part: unknown): string {
  if (typeof part === "string") return part;
  const { text } = (part ?? {}) as Body;
  return typeof text === "string" ? text : JSON.stringify(part);
}

/** Length of an answer that nobody limited: 16 to 512 tokens, the same for the same prompt. */
function naturalLength(prompt: Uint32Array, body: Body): number {
  let sum = prompt.length;
  for (let at = Math.max(0, prompt.length - 64); at < prompt.length; at++) {
    sum = Math.imul(sum ^ prompt[at]!, 0x9e37_79b1);
  }
  const least = (body["min_tokens"] as number | null | undefined) ?? 0;
  return Math.max(least, 16 + ((sum >>> 0) % 497));
}

function isCount(value: unknown, least: number, most: number): value is number {
  return Number.isInteger(value) && (value as number) >= least && (value as number) <= most;
}
