import { expectedTokens } from "@baton/engine-model";
import { type ChatMessage, renderChat, tokenizeText } from "@baton/engine-sim";
import { type Engine, model } from "./engine.ts";

type Ids = readonly number[] | Uint32Array;

/** Texts of the only right answer to a prompt. */
export function answerTo(promptIds: Ids, count: number): readonly string[] {
  return expectedTokens(Uint32Array.from(promptIds), count).texts;
}

export function idsOfText(text: string): Uint32Array {
  return tokenizeText(text).tokenIds;
}

export function idsOfChat(messages: readonly ChatMessage[]): Uint32Array {
  return tokenizeText(renderChat(messages, [])).tokenIds;
}

/** A prompt of its own for each seed. */
export function promptOf(seed: number, length: number): number[] {
  return Array.from({ length }, (_, at) => (seed * 7_919 + at * 31 + 1) % 150_000);
}

/** A completion over token ids. */
export function completion(
  promptIds: readonly number[],
  tokensMax: number,
  more: Readonly<Record<string, unknown>> = {},
): Record<string, unknown> {
  return { model, prompt: promptIds, max_tokens: tokensMax, ...more };
}

export interface CompletionBody {
  readonly choices: readonly { readonly text: string; readonly finish_reason: string }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number } | null;
  };
}

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
}

export interface Answer {
  readonly status: number;
  readonly requestId: string;
  readonly headers: Headers;
  readonly text: string;
  readonly completion: CompletionBody;
  readonly error: ErrorBody["error"];
}

/** Sends a body as it is; `completion` and `error` are for the caller that knows which came. */
export async function post(
  { url }: Pick<Engine, "url">,
  body: unknown,
  more: {
    readonly path?: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly signal?: AbortSignal;
  } = {},
): Promise<Answer> {
  const { path = "/v1/completions", headers = {}, signal = null } = more;
  const response = await fetch(`${url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
    signal,
  });
  const text = await response.text();
  const json = (): unknown => JSON.parse(text);
  return {
    status: response.status,
    requestId: response.headers.get("x-request-id") ?? "",
    headers: response.headers,
    text,
    get completion() {
      return json() as CompletionBody;
    },
    get error() {
      return (json() as ErrorBody).error;
    },
  };
}

/** The `data` of each server-sent event. */
export function eventsOf(text: string): string[] {
  return text
    .split("\n\n")
    .flatMap((event) => (event === "" ? [] : [event.replace(/^data: /, "")]));
}
