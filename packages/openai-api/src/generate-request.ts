import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { type MemberSpan, scanTopLevel } from "./json-scan.ts";
import { skipValue } from "./json-skip.ts";
import { PromptReader } from "./prompt.ts";
import { RequestFields } from "./request-fields.ts";

/** `chat`: /v1/chat/completions, `completions`: /v1/completions. */
export type GenerateRoute = "chat" | "completions";

/** What Baton needs to know of a request. Everything else stays in the body and goes to the engine. */
export interface GenerateRequest {
  readonly route: GenerateRoute;
  readonly model: string;
  readonly isStream: boolean;
  /** The client asked for the usage chunk at the end of the stream. */
  readonly includeUsage: boolean;
  /** Ids of a prompt given as one list of token ids; null when it must be tokenised. */
  readonly promptTokenIds: Uint32Array | null;
  /** Bytes of JSON that hold the prompt (messages and tools, or prompt): an upper bound in tokens. */
  readonly promptBytes: number;
  /** What the client allows, or the API's default of 16 on `completions`; null: no limit given. */
  readonly maxOutputTokens: number | null;
  readonly cacheSalt: string | null;
  /** Why prefill and decode must run on one engine; null when they can be split. */
  readonly unsplittable: string | null;
  /** As vLLM has it: lower is sooner, 0 when not given. */
  readonly priority: number;
  readonly members: readonly MemberSpan[];
}

/** The API's default of `max_tokens` on /v1/completions. */
const completionsMaxTokensDefault = 16;

/**
 * Reads and checks what can be checked without an engine: BATON_BAD_JSON, or BATON_BAD_REQUEST with
 * `param`. As in `JSON.parse`, the last of equal keys counts. Value ranges that depend on the engine
 * (temperature, context length, vocabulary) and the content of messages are left to it.
 *
 * Cost: a scan of the body plus a parse of the few small fields read here; messages and text prompts
 * are never built. In a `Buffer`, 400 KB of prose cost tens of
 * microseconds; text full of escapes and lists of token ids cost about a nanosecond per byte.
 */
export function parseGenerateRequest(
  route: GenerateRoute,
  body: Uint8Array,
): Outcome<GenerateRequest, BatonError> {
  const prompt = new PromptReader(body);
  const scanned = scanTopLevel(body, (key, from) => {
    if (route === "chat" && key === "messages") return prompt.stepMessages(from);
    if (route === "completions" && key === "prompt") return prompt.stepPrompt(from);
    return skipValue(body, from);
  });
  if (!scanned.ok) {
    const { message, atByte } = scanned.error;
    return fail(
      batonError("BATON_BAD_JSON", `The body is not a JSON object: ${message} at byte ${atByte}.`),
    );
  }
  const fields = new RequestFields(body, scanned.value);
  const model = fields.text("model");
  if (model === null) fields.missing("model");
  const promptBytes = readPromptBytes(fields, route);
  if (promptBytes > 0) prompt.report(fields);
  const isStream = fields.flag("stream");
  const request = {
    route,
    model: model ?? "",
    isStream,
    includeUsage: readStreamOptions(fields, isStream),
    promptTokenIds: prompt.tokenIds,
    promptBytes,
    maxOutputTokens: readMaxOutputTokens(fields, route),
    cacheSalt: fields.text("cache_salt"),
    unsplittable: unsplittableReason(fields, prompt.count),
    priority: fields.integer("priority", Number.MIN_SAFE_INTEGER) ?? 0,
    members: scanned.value,
  };
  return fields.error === null ? ok(request) : fail(fields.error);
}

function readPromptBytes(fields: RequestFields, route: GenerateRoute): number {
  const name = route === "chat" ? "messages" : "prompt";
  const isEmbedded = route === "completions" && fields.isGiven("prompt_embeds");
  if (!fields.isGiven(name) && !isEmbedded) fields.missing(name);
  return fields.valueBytes(name) + (route === "chat" ? fields.valueBytes("tools") : 0);
}

function readStreamOptions(fields: RequestFields, isStream: boolean): boolean {
  const options = fields.object("stream_options");
  if (options === null) return false;
  if (!isStream) {
    fields.refuse("stream_options", "'stream_options' is only allowed when 'stream' is true.");
  }
  const includeUsage = options["include_usage"] ?? false;
  if (typeof includeUsage !== "boolean") {
    fields.wrongType("stream_options.include_usage", "a boolean", includeUsage);
  }
  return includeUsage === true;
}

function readMaxOutputTokens(fields: RequestFields, route: GenerateRoute): number | null {
  // With echo, completions may ask for the prompt alone.
  const isEchoAlone = route === "completions" && fields.flag("echo");
  const maxTokens = fields.integer("max_tokens", isEchoAlone ? 0 : 1);
  const maxCompletionTokens = fields.integer("max_completion_tokens", 1);
  const stated = route === "chat" ? (maxCompletionTokens ?? maxTokens) : maxTokens;
  const minTokens = fields.integer("min_tokens", 0) ?? 0;
  if (stated !== null && minTokens > stated) {
    fields.refuse(
      "min_tokens",
      `'min_tokens' (${minTokens}) is more than the most tokens allowed (${stated}).`,
    );
  }
  return stated ?? (route === "completions" ? completionsMaxTokensDefault : null);
}

/**
 * One handle serves one sequence, and only an engine that computes the prompt has its logits; so
 * several sequences, or anything about the prompt's own tokens, needs one engine for both phases.
 */
function unsplittableReason(fields: RequestFields, promptCount: number): string | null {
  if ((fields.integer("n", 1) ?? 1) > 1) return "n is more than 1";
  if ((fields.integer("best_of", 0) ?? 1) > 1) return "best_of is more than 1";
  if (promptCount > 1) return "several prompts";
  if (fields.flag("echo")) return "echo";
  if (fields.isGiven("prompt_logprobs")) return "prompt_logprobs";
  if (fields.isGiven("prompt_embeds")) return "prompt_embeds";
  if (fields.flag("use_beam_search")) return "use_beam_search";
  return null;
}
