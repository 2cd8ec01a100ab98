import type { Route } from "./generation-request.ts";

/** What all pieces of one answer share. */
export interface AnswerHead {
  readonly route: Route;
  readonly id: string;
  readonly createdS: number;
  /** As a JSON string, quotes included. */
  readonly modelJson: string;
  readonly fingerprint: string;
}

export interface AnswerUsage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Null when the engine does not tell. */
  readonly cachedTokens: number | null;
  readonly createdCacheTokens: number;
}

export interface ChunkToken {
  readonly choice: number;
  readonly text: string;
  readonly tokenId: number;
  readonly finishReason: string | null;
}

export interface ChunkOptions {
  /** First chunk of a choice: the prompt's ids as JSON when they are asked for. */
  readonly promptIdsJson: string | null;
  readonly returnsTokenIds: boolean;
  /** Running usage, when asked for with every chunk. */
  readonly usage: AnswerUsage | null;
  readonly hasFingerprint: boolean;
}

export const streamEnd = "data: [DONE]\n\n";

/** Text up to the list of choices; texts of this engine need no escapes, ids are checked before. */
function opening(head: AnswerHead, object: string): string {
  return `{"id":"${head.id}","object":"${object}","created":${head.createdS},"model":${head.modelJson},"choices":[`;
}

function chunkOpening(head: AnswerHead): string {
  const object = head.route === "chat" ? "chat.completion.chunk" : "text_completion";
  return `data: ${opening(head, object)}`;
}

function closing(options: ChunkOptions, head: AnswerHead): string {
  const usage = options.usage === null ? "" : `,"usage":{${countsJson(options.usage)}}`;
  const fingerprint = options.hasFingerprint ? `,"system_fingerprint":"${head.fingerprint}"` : "";
  return `${usage}${fingerprint}}\n\n`;
}

/** One server-sent event with one token. */
export function tokenChunk(head: AnswerHead, token: ChunkToken, options: ChunkOptions): string {
  const reason = token.finishReason === null ? "null" : `"${token.finishReason}"`;
  const ids = options.returnsTokenIds ? `[${token.tokenId}]` : "null";
  const start = `${chunkOpening(head)}{"index":${token.choice},`;
  const body =
    head.route === "chat"
      ? `"delta":{"content":"${token.text}"},"logprobs":null,"finish_reason":${reason},${token.finishReason === null ? "" : '"stop_reason":null,'}"token_ids":${ids}}]`
      : `"text":"${token.text}","logprobs":null,"finish_reason":${reason},"stop_reason":null,"prompt_token_ids":${options.promptIdsJson ?? "null"},"token_ids":${ids}}]`;
  return `${start}${body}${closing(options, head)}`;
}

/** The event with which a chat choice begins. */
export function roleChunk(head: AnswerHead, choice: number, options: ChunkOptions): string {
  const delta = `{"index":${choice},"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`;
  const prompt = `"prompt_token_ids":${options.promptIdsJson ?? "null"},"prompt_text":null`;
  return `${chunkOpening(head)}${delta}],${prompt}${closing(options, head)}`;
}

/** The event with the usage, behind the last token. */
export function usageChunk(head: AnswerHead, usage: AnswerUsage): string {
  const created =
    head.route === "chat" ? `,"created_cache_tokens":${usage.createdCacheTokens}` : "";
  const details =
    usage.cachedTokens === null
      ? ""
      : `,"prompt_tokens_details":{"cached_tokens":${usage.cachedTokens}${created}}`;
  return `${chunkOpening(head)}],"usage":{${countsJson(usage)}${details}},"system_fingerprint":"${head.fingerprint}"}\n\n`;
}

export interface WholeChoice {
  readonly text: string;
  readonly tokenIds: readonly number[];
  readonly promptIds: Uint32Array;
  readonly finishReason: string;
}

/** The whole answer of a request that does not stream. */
export function wholeAnswer(
  head: AnswerHead,
  choices: readonly WholeChoice[],
  options: {
    readonly usage: AnswerUsage;
    readonly returnsTokenIds: boolean;
    readonly kvTransferJson: string | null;
  },
): string {
  const isChat = head.route === "chat";
  const list = choices.map((choice, index) => choiceJson(choice, index, isChat, options));
  const usage = `"usage":{${countsJson(options.usage)},"prompt_tokens_details":${detailsJson(options.usage, isChat)},"completion_tokens_details":null}`;
  const promptIds = options.returnsTokenIds ? idsJson(choices[0]!.promptIds) : "null";
  const prompt = isChat
    ? `"prompt_logprobs":null,"prompt_token_ids":${promptIds},"prompt_text":null,`
    : "";
  const start = opening(head, isChat ? "chat.completion" : "text_completion");
  return `${start}${list.join(",")}],"service_tier":null,"system_fingerprint":"${head.fingerprint}",${usage},${prompt}"kv_transfer_params":${options.kvTransferJson ?? "null"},"ec_transfer_params":null,"metrics":null}`;
}

export function idsJson(ids: Uint32Array): string {
  return `[${ids.join(",")}]`;
}

function choiceJson(
  choice: WholeChoice,
  index: number,
  isChat: boolean,
  options: { readonly returnsTokenIds: boolean },
): string {
  const ids = options.returnsTokenIds ? `[${choice.tokenIds.join(",")}]` : "null";
  const tail = `"logprobs":null,"finish_reason":"${choice.finishReason}","stop_reason":null,"token_ids":${ids}`;
  if (isChat) {
    const message = `"message":{"role":"assistant","content":"${choice.text}","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}`;
    return `{"index":${index},${message},${tail},"routed_experts":null}`;
  }
  const promptIds = options.returnsTokenIds ? idsJson(choice.promptIds) : "null";
  return `{"index":${index},"text":"${choice.text}",${tail},"prompt_logprobs":null,"prompt_token_ids":${promptIds},"routed_experts":null}`;
}

function countsJson({ promptTokens, completionTokens }: AnswerUsage): string {
  const total = promptTokens + completionTokens;
  return `"prompt_tokens":${promptTokens},"total_tokens":${total},"completion_tokens":${completionTokens}`;
}

function detailsJson(usage: AnswerUsage, isChat: boolean): string {
  if (usage.cachedTokens === null) return "null";
  const created = isChat ? usage.createdCacheTokens : null;
  return `{"cached_tokens":${usage.cachedTokens},"created_cache_tokens":${created},"multimodal_tokens":null}`;
}
