import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { findMember, type MemberSpan, memberValue, scanTopLevel } from "@baton/openai-api";
import type { EngineText, Route, Tokenized, TokenizeInput, Tokenizer } from "@baton/ports";
import { isObject } from "./conversation.ts";
import { textOf } from "./tokenizer-folder.ts";

/** Posts a JSON body to /tokenize of some worker that serves the model. */
export type FetchTokenize = (
  model: string,
  body: string,
) => Promise<Outcome<EngineText, BatonError>>;

/** Members of a request that /tokenize of vLLM knows too, under the same names. */
const passed: Readonly<Record<Route, readonly string[]>> = {
  chat: [
    "model",
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "chat_template",
    "media_io_kwargs",
    "mm_processor_kwargs",
  ],
  completions: ["model", "add_special_tokens"],
};

const utf8 = new TextDecoder();

/** Asks an engine, at most `inFlightMax` requests at a time; more are refused at once. */
export class EngineTokenizer implements Tokenizer {
  readonly #fetchTokenize: FetchTokenize;
  readonly #inFlightMax: number;
  #inFlight = 0;

  constructor(fetchTokenize: FetchTokenize, inFlightMax: number) {
    this.#fetchTokenize = fetchTokenize;
    this.#inFlightMax = inFlightMax;
  }

  async tokenize(input: TokenizeInput): Promise<Outcome<Tokenized, BatonError>> {
    if (this.#inFlight >= this.#inFlightMax) {
      return failed(`${this.#inFlightMax} prompts are being tokenised by engines already`);
    }
    const body = tokenizeRequest(input.route, input.body);
    if (!body.ok) return failed(body.error);
    this.#inFlight++;
    try {
      const answer = await this.#fetchTokenize(input.model, body.value);
      if (!answer.ok) return failed(answer.error.message);
      const { status, text } = answer.value;
      if (status !== 200) return failed(`/tokenize answered ${status}: ${text.slice(0, 200)}`);
      return readTokens(text);
    } finally {
      this.#inFlight--;
    }
  }

  async close(): Promise<void> {}
}

/**
 * The request to /tokenize, made of the client's own bytes. `reasoning_effort` is no field of it, so
 * it goes where the engine would put it: among the template's variables.
 */
function tokenizeRequest(route: Route, body: Uint8Array): Outcome<string, string> {
  const scanned = scanTopLevel(body);
  if (!scanned.ok) return fail(scanned.error.message);
  const members = scanned.value;
  const fields: string[] = [];
  const rawOf = (key: string): string | null => {
    const member = findMember(members, key);
    return member === null ? null : rawText(body, member);
  };
  for (const key of passed[route]) {
    const raw = rawOf(key);
    if (raw !== null && raw !== "null") fields.push(`"${key}":${raw}`);
  }
  if (route === "completions") {
    const prompt = onlyPrompt(rawOf("prompt"));
    if (prompt === null) return fail("the prompt is not one text");
    fields.push(`"prompt":${prompt}`);
  }
  if (rawOf("continue_final_message") === "true" && rawOf("add_generation_prompt") === null) {
    return fail("add_generation_prompt and continue_final_message exclude each other");
  }
  if (route === "chat") {
    const kwargs = templateVariables(rawOf("chat_template_kwargs"), rawOf("reasoning_effort"));
    if (kwargs !== null) fields.push(`"chat_template_kwargs":${kwargs}`);
  }
  return ok(`{${fields.join(",")}}`);
}

/** JSON text of a prompt that is one text, also when it is the only one of a list. */
function onlyPrompt(raw: string | null): string | null {
  if (raw?.startsWith('"')) return raw;
  const prompts = parse(raw);
  const isOne = Array.isArray(prompts) && prompts.length === 1 && typeof prompts[0] === "string";
  return isOne ? JSON.stringify(prompts[0]) : null;
}

function templateVariables(rawKwargs: string | null, rawEffort: string | null): string | null {
  const effort: unknown = parse(rawEffort);
  if (effort === null) return rawKwargs;
  const kwargs = parse(rawKwargs);
  return JSON.stringify({
    enable_thinking: effort !== "none",
    ...(isObject(kwargs) ? kwargs : {}),
    reasoning_effort: effort,
  });
}

function rawText(body: Uint8Array, member: MemberSpan): string {
  return utf8.decode(memberValue(body, member));
}

function parse(raw: string | null): unknown {
  try {
    return JSON.parse(raw ?? "null");
  } catch {
    // The engine that generates refuses the request for it.
    return null;
  }
}

function readTokens(text: string): Outcome<Tokenized, BatonError> {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch (error) {
    return failed(`/tokenize did not answer with JSON: ${textOf(error)}`);
  }
  const tokens = isObject(answer) ? answer["tokens"] : null;
  const isList = Array.isArray(tokens) && tokens.every((id) => Number.isInteger(id) && id >= 0);
  if (!isList) return failed("/tokenize answered without a list of tokens");
  return ok({ tokenIds: Uint32Array.from(tokens), source: "engine" });
}

function failed(reason: string): Outcome<never, BatonError> {
  return fail(batonError("BATON_TOKENIZER_FAILED", reason));
}
