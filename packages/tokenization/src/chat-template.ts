import { fail, type Outcome, ok } from "@baton/kit";
import { Template } from "@huggingface/jinja";
import { detectContentFormat } from "./content-format.ts";
import {
  type ContentFormat,
  isObject,
  type JsonObject,
  readConversation,
  readTools,
} from "./conversation.ts";

export interface ChatTemplate {
  readonly template: Template;
  readonly format: ContentFormat;
}

export function compileChatTemplate(source: string): ChatTemplate {
  const template = new Template(source);
  return { template, format: detectContentFormat(template) };
}

/** Marks where the final message ends, so that what the template puts after it can be cut off. */
const finalMessageMark = "BATON_FINAL_MESSAGE_END ";

/**
 * Text of a chat request under a template, by vLLM's rules: the generation prompt is added unless the
 * request says otherwise, `chat_template_kwargs` become variables, a given `reasoning_effort` also
 * decides `enable_thinking`. Fails with a reason where the engine's text cannot be known here, or
 * where the engine refuses too. May throw what a template raises.
 *
 * JSON loses what JavaScript cannot hold: a schema in `tools` with 1.0, integers above 2^53, or keys
 * that look like integers is written differently from the engine, and such prompts match no prefix.
 */
export function renderChat(
  chat: ChatTemplate,
  body: JsonObject,
  specialTokens: Readonly<Record<string, string>>,
): Outcome<string, string> {
  if (isGiven(body["chat_template"])) return fail("the request brings its own chat_template");
  const conversation = readConversation(body["messages"], chat.format);
  if (!conversation.ok) return conversation;
  const tools = readTools(body["tools"]);
  if (!tools.ok) return tools;
  const given = isObject(body["chat_template_kwargs"]) ? body["chat_template_kwargs"] : {};
  if ("chat_template" in given || "tokenize" in given) {
    return fail("chat_template_kwargs has chat_template or tokenize");
  }
  const addGenerationPrompt = body["add_generation_prompt"] ?? true;
  const continueFinalMessage = body["continue_final_message"] === true;
  if (addGenerationPrompt === true && continueFinalMessage) {
    return fail("add_generation_prompt and continue_final_message exclude each other");
  }
  const effort = body["reasoning_effort"];
  const messages = continueFinalMessage ? withMark(conversation.value) : conversation.value;
  if (messages === null) return fail("continue_final_message needs a final message with text");
  const text = chat.template.render({
    ...specialTokens,
    ...(isGiven(effort) && !("enable_thinking" in given) && { enable_thinking: effort !== "none" }),
    ...given,
    ...(isGiven(effort) && { reasoning_effort: effort }),
    documents: body["documents"] ?? null,
    add_generation_prompt: addGenerationPrompt,
    messages,
    tools: tools.value,
  });
  return continueFinalMessage ? cutAtMark(text) : ok(text);
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function withMark(messages: readonly JsonObject[]): JsonObject[] | null {
  const last = messages.at(-1);
  if (last === undefined) return null;
  const content = last["content"] as string | JsonObject[];
  if (typeof content === "string") {
    return [...messages.slice(0, -1), { ...last, content: content + finalMessageMark }];
  }
  const part = content.at(-1);
  if (part === undefined) return null;
  const marked = { ...part, text: `${part["text"]}${finalMessageMark}` };
  return [...messages.slice(0, -1), { ...last, content: [...content.slice(0, -1), marked] }];
}

/** A template that trims its contents also takes the spaces before the mark. */
function cutAtMark(text: string): Outcome<string, string> {
  const at = text.lastIndexOf(finalMessageMark.trim());
  if (at === -1) return fail("the template does not show the final message");
  const isTrimmed = !text.startsWith(finalMessageMark, at);
  return ok(isTrimmed ? text.slice(0, at).trimEnd() : text.slice(0, at));
}
