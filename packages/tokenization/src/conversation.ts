import { fail, type Outcome, ok } from "@baton/kit";

export type JsonObject = Record<string, unknown>;

/** How a template reads `content`: one text, or a list of parts that it walks itself. */
export type ContentFormat = "text" | "parts";

/**
 * Messages as vLLM hands them to a chat template (`parse_chat_messages` and its post-processing):
 * only the fields it keeps, contents in the form that the template expects, tool arguments parsed.
 * Fails on parts that are not text: an engine expands them into tokens that are not known here.
 */
export function readConversation(
  messages: unknown,
  format: ContentFormat,
): Outcome<JsonObject[], string> {
  if (!Array.isArray(messages)) return fail("messages is not a list");
  const conversation: JsonObject[] = [];
  for (const message of messages) {
    if (!isObject(message)) return fail("a message is not an object");
    const content = readContent(message["content"], format, message["role"] === "tool");
    if (!content.ok) return content;
    conversation.push({ role: message["role"], content: content.value, ...kept(message) });
  }
  return ok(conversation);
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Field of each kind of part that holds its text. */
const textFields: Readonly<Record<string, string>> = {
  text: "text",
  input_text: "text",
  output_text: "text",
  refusal: "refusal",
  thinking: "thinking",
};

function readContent(
  content: unknown,
  format: ContentFormat,
  isToolResult: boolean,
): Outcome<string | JsonObject[], string> {
  const given = content ?? [];
  const parts = typeof given === "string" ? [given] : given;
  if (!Array.isArray(parts)) return fail("a message content is neither text nor a list");
  const texts: string[] = [];
  for (const part of parts) {
    if (typeof part === "string") texts.push(part);
    else {
      const field = isObject(part) ? textFields[String(part["type"])] : undefined;
      const text = field === undefined ? undefined : (part as JsonObject)[field];
      if (field === undefined) return fail("a message has content that is not text");
      if (typeof text === "string") texts.push(text);
    }
  }
  if (format === "parts" && !isToolResult) return ok(texts.map((text) => ({ type: "text", text })));
  // An empty part adds no line break.
  return ok(texts.filter((text) => text !== "").join("\n"));
}

function kept(message: JsonObject): JsonObject {
  const fields: JsonObject = {};
  if (typeof message["name"] === "string") fields["name"] = message["name"];
  if (message["role"] === "assistant") {
    const calls = message["tool_calls"];
    if (Array.isArray(calls) && calls.length > 0) fields["tool_calls"] = calls.map(withArguments);
    const reasoning = message["reasoning"] ?? message["reasoning_content"];
    if (reasoning !== undefined && reasoning !== null) {
      fields["reasoning"] = reasoning;
      fields["reasoning_content"] = reasoning;
    }
  }
  if (message["role"] === "tool" && message["tool_call_id"] !== undefined) {
    fields["tool_call_id"] = message["tool_call_id"];
  }
  if (message["role"] === "developer") fields["tools"] = message["tools"] ?? null;
  return fields;
}

/** Templates expect an object of arguments, where OpenAI's form has its JSON text. */
function withArguments(call: unknown): unknown {
  if (!isObject(call) || !isObject(call["function"])) return call;
  return {
    ...call,
    function: { ...call["function"], arguments: readArguments(call["function"]["arguments"]) },
  };
}

function readArguments(given: unknown): JsonObject {
  if (isObject(given)) return given;
  if (typeof given !== "string") return {};
  try {
    const parsed: unknown = JSON.parse(given);
    return isObject(parsed) ? parsed : {};
  } catch {
    // History with broken arguments goes on with none, as in the engine.
    return {};
  }
}

/** `tools` in the order and with the defaults of the engine's own model of them. */
export function readTools(tools: unknown): Outcome<JsonObject[] | null, string> {
  if (tools === undefined || tools === null) return ok(null);
  if (!Array.isArray(tools)) return fail("tools is not a list");
  const read: JsonObject[] = [];
  for (const tool of tools) {
    const given = isObject(tool) ? tool["function"] : undefined;
    if (!isObject(tool) || !isObject(given)) return fail("a tool is not a function");
    const { name, description = null, parameters = null } = given;
    const definition: JsonObject = { name, description, parameters };
    const deferLoading = given["defer_loading"] ?? tool["defer_loading"];
    addGiven(definition, "strict", given["strict"]);
    addGiven(definition, "defer_loading", deferLoading);
    const entry: JsonObject = { type: "function", function: definition };
    addGiven(entry, "defer_loading", tool["defer_loading"]);
    read.push(entry);
  }
  return ok(read);
}

function addGiven(target: JsonObject, key: string, value: unknown): void {
  if (value !== undefined && value !== null) target[key] = value;
}
