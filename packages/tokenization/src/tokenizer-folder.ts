import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fail, type Outcome, ok } from "@baton/kit";
import { Tokenizer } from "@huggingface/tokenizers";
import { type ChatTemplate, compileChatTemplate } from "./chat-template.ts";
import { isObject, type JsonObject } from "./conversation.ts";

export interface LoadedTokenizer {
  readonly tokenizer: Tokenizer;
  /** Null when the model has none: chat requests then fail with a reason. */
  readonly chat: ChatTemplate | null;
  /** Used when a request has tools and the model has a template of its own for that. */
  readonly chatWithTools: ChatTemplate | null;
  readonly specialTokens: Readonly<Record<string, string>>;
}

/**
 * Reads a folder as models are published: tokenizer.json, tokenizer_config.json, and the chat
 * template in chat_template.jinja or in the config. 11 MB of tokenizer.json take about 0.4 s and
 * 230 MB. The error says which file and what is wrong with it.
 */
export async function loadTokenizerFolder(
  folder: string,
): Promise<Outcome<LoadedTokenizer, string>> {
  const vocabulary = await readJson(join(folder, "tokenizer.json"));
  if (!vocabulary.ok) return vocabulary;
  const config = await readJson(join(folder, "tokenizer_config.json"));
  if (!config.ok) return config;
  const templates = await readTemplates(folder, config.value);
  if (!templates.ok) return templates;
  try {
    return ok({
      tokenizer: new Tokenizer(vocabulary.value, config.value),
      chat: compileNamed(templates.value, "default"),
      chatWithTools: compileNamed(templates.value, "tool_use"),
      specialTokens: readSpecialTokens(config.value),
    });
  } catch (error) {
    return fail(`${folder}: the tokenizer or its chat template is not supported: ${textOf(error)}`);
  }
}

async function readTemplates(
  folder: string,
  config: JsonObject,
): Promise<Outcome<ReadonlyMap<string, string>, string>> {
  const file = await readText(join(folder, "chat_template.jinja"));
  if (file.ok) return ok(new Map([["default", file.value]]));
  if (file.error.code !== "ENOENT") return fail(file.error.message);
  const inConfig = config["chat_template"] ?? [];
  if (typeof inConfig === "string") return ok(new Map([["default", inConfig]]));
  const path = join(folder, "tokenizer_config.json");
  if (!Array.isArray(inConfig)) return fail(`${path}: chat_template is neither a text nor a list`);
  const named = new Map<string, string>();
  for (const entry of inConfig) {
    if (!isObject(entry)) return fail(`${path}: an entry of chat_template is not an object`);
    named.set(String(entry["name"]), String(entry["template"]));
  }
  return ok(named);
}

function compileNamed(templates: ReadonlyMap<string, string>, name: string): ChatTemplate | null {
  const source = templates.get(name);
  return source === undefined ? null : compileChatTemplate(source);
}

const specialTokenNames = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token"];

/** Templates see them by name; a token is written as text or as an object with its content. */
function readSpecialTokens(config: JsonObject): Record<string, string> {
  const tokens: Record<string, string> = {};
  for (const name of specialTokenNames) {
    const token = config[name];
    const text = isObject(token) ? token["content"] : token;
    if (typeof text === "string") tokens[name] = text;
  }
  return tokens;
}

async function readJson(path: string): Promise<Outcome<JsonObject, string>> {
  const text = await readText(path);
  if (!text.ok) return fail(text.error.message);
  try {
    const value: unknown = JSON.parse(text.value);
    return isObject(value) ? ok(value) : fail(`${path} is not a JSON object`);
  } catch (error) {
    return fail(`${path} is not JSON: ${textOf(error)}`);
  }
}

async function readText(
  path: string,
): Promise<Outcome<string, { readonly code: string; readonly message: string }>> {
  try {
    return ok(await readFile(path, "utf8"));
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? "";
    const what = code === "ENOENT" ? "is missing" : `cannot be read: ${textOf(error)}`;
    return fail({ code, message: `${path} ${what}` });
  }
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
