import { fail, type Outcome, ok } from "@baton/kit";
import { allowsNull } from "./config-allowed.ts";
import { forms, type SchemaNode } from "./config-tree.ts";

const decimal = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

/**
 * A text of the environment or the command line as a raw value of the type that the schema wants.
 * Empty means null where null is allowed. Numbers are decimal, booleans `true` and `false`, lists
 * of plain values are separated by commas (or a JSON array), other lists and maps are JSON.
 * Text of the wrong kind comes back as it is, for the schema to refuse; only broken JSON fails.
 */
export function valueOfText(node: SchemaNode, text: string): Outcome<unknown, string> {
  if (text === "" && allowsNull(node)) return ok(null);
  for (const form of forms(node)) {
    switch (form.type) {
      case "integer":
      case "number":
        if (decimal.test(text.trim())) return ok(Number(text));
        break;
      case "boolean":
        if (text.trim() === "true") return ok(true);
        if (text.trim() === "false") return ok(false);
        break;
      case "array":
        return listOfText(form, text);
      case "object":
        return valueOfJson(text);
      default:
        break;
    }
  }
  return ok(text);
}

function listOfText(form: SchemaNode, text: string): Outcome<unknown, string> {
  const trimmed = text.trim();
  if (trimmed === "") return ok([]);
  const item = form.items ?? {};
  const isPlain = forms(item).every((each) => each.type !== "object" && each.type !== "array");
  // `[::1]:80,b:80` begins like a JSON array and does not end like one.
  if (!isPlain || /^\[.*\]$/s.test(trimmed)) return valueOfJson(trimmed);
  const list: unknown[] = [];
  for (const part of trimmed.split(",")) {
    const value = valueOfText(item, part.trim());
    if (!value.ok) return value;
    list.push(value.value);
  }
  return ok(list);
}

function valueOfJson(text: string): Outcome<unknown, string> {
  try {
    return ok(JSON.parse(text));
  } catch (thrown) {
    // The parser's message may quote the text, which may hold a secret; the position suffices.
    const at = /position \d+/.exec((thrown as Error).message);
    return fail(`is not JSON${at === null ? "" : ` (${at[0]})`}`);
  }
}
