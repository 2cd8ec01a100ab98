import { fail, type Outcome, ok } from "@baton/kit";
import type { Route } from "@baton/ports";
import { renderChat } from "./chat-template.ts";
import { isObject, type JsonObject } from "./conversation.ts";
import type { LoadedTokenizer } from "./tokenizer-folder.ts";

/**
 * Token ids of a request body, as vLLM would make them: special tokens are added to completions and
 * not to chats, unless the request says otherwise. The reason of a failure is for a log. Throws what
 * templates and the tokenizer throw. Seconds for extreme inputs: never on a thread that serves.
 */
export function tokenizeBody(
  loaded: LoadedTokenizer,
  route: Route,
  bytes: Uint8Array,
): Outcome<Uint32Array, string> {
  const body: unknown = JSON.parse(new TextDecoder().decode(bytes));
  if (!isObject(body)) return fail("the body is not an object");
  const truncation = body["truncate_prompt_tokens"];
  if (truncation !== undefined && truncation !== null) return fail("the prompt is to be truncated");
  const text = route === "chat" ? chatText(loaded, body) : promptText(body["prompt"]);
  if (!text.ok) return text;
  if (typeof text.value !== "string") return ok(Uint32Array.from(text.value));
  const isAdded = body["add_special_tokens"] ?? route === "completions";
  const encoding = loaded.tokenizer.encode(text.value, { add_special_tokens: isAdded === true });
  return ok(Uint32Array.from(encoding.ids));
}

function chatText(loaded: LoadedTokenizer, body: JsonObject): Outcome<string, string> {
  const hasTools = Array.isArray(body["tools"]);
  const chat = (hasTools ? loaded.chatWithTools : null) ?? loaded.chat;
  if (chat === null) return fail("the tokenizer folder has no chat template");
  return renderChat(chat, body, loaded.specialTokens);
}

/** One prompt; ids are passed on. Several prompts are several sequences, which no plan is made for. */
function promptText(prompt: unknown): Outcome<string | readonly number[], string> {
  if (typeof prompt === "string") return ok(prompt);
  if (!Array.isArray(prompt)) return fail("prompt is neither a text nor a list");
  if (prompt.every((each) => typeof each === "number")) return ok(prompt);
  return prompt.length === 1 ? promptText(prompt[0]) : fail("there are several prompts");
}
