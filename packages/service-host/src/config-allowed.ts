import { forms, type SchemaNode } from "./config-tree.ts";

/** Type of a leaf in words: `integer`, `list of string`, `map of object`, `string or null`. */
export function typeText(node: SchemaNode): string {
  const names = forms(node).map((form) => {
    if (form.type === "array") return `list of ${form.items ? typeText(form.items) : "any"}`;
    if (form.type === "object" && typeof form.additionalProperties === "object") {
      return `map of ${typeText(form.additionalProperties)}`;
    }
    return form.type ?? (form.const === undefined ? "any" : typeof form.const);
  });
  return [...new Set(names)].join(" or ");
}

/** What a leaf allows, in words; empty when its type says it all. */
export function allowedText(node: SchemaNode): string {
  if (node.allowed !== undefined) return node.allowed + (allowsNull(node) ? " or null" : "");
  const texts = forms(node).map(allowedForm);
  return [...new Set(texts.filter((text) => text !== ""))].join(" or ");
}

export function allowsNull(node: SchemaNode): boolean {
  return forms(node).some((form) => form.type === "null");
}

function allowedForm(form: SchemaNode): string {
  if (form.allowed !== undefined) return form.allowed;
  if (form.const !== undefined) return String(form.const);
  if (form.enum !== undefined) return form.enum.map(String).join(", ");
  switch (form.type) {
    case "null":
      return "null";
    case "integer":
    case "number":
      return rangeText(form);
    case "boolean":
      return "true, false";
    case "string":
      return stringText(form);
    case "array":
      return listText(form);
    case "object":
      return form.properties === undefined ? "" : `keys ${Object.keys(form.properties).join(", ")}`;
    default:
      return "";
  }
}

function rangeText(form: SchemaNode): string {
  // zod bounds every integer by what a double can hold; that says nothing to a reader.
  const min = form.minimum === Number.MIN_SAFE_INTEGER ? undefined : form.minimum;
  const max = form.maximum === Number.MAX_SAFE_INTEGER ? undefined : form.maximum;
  if (min !== undefined && max !== undefined) return `${min} to ${max}`;
  const parts: string[] = [];
  if (min !== undefined) parts.push(`at least ${min}`);
  if (form.exclusiveMinimum !== undefined) parts.push(`above ${form.exclusiveMinimum}`);
  if (max !== undefined) parts.push(`at most ${max}`);
  if (form.exclusiveMaximum !== undefined) parts.push(`below ${form.exclusiveMaximum}`);
  return parts.join(", ");
}

function stringText(form: SchemaNode): string {
  if (form.format === "uri") return "a URL";
  if (form.pattern !== undefined) return `text that matches ${form.pattern}`;
  if (form.format !== undefined) return `text in the form ${form.format}`;
  return countText(form.minLength, form.maxLength, "characters");
}

function listText(form: SchemaNode): string {
  const each = form.items === undefined ? "" : allowedText(form.items);
  const count = countText(form.minItems, form.maxItems, "items");
  return [count, each === "" ? "" : `each: ${each}`].filter((text) => text !== "").join("; ");
}

function countText(min: number | undefined, max: number | undefined, what: string): string {
  if (min !== undefined && max !== undefined) return `${min} to ${max} ${what}`;
  if (min !== undefined) return `at least ${min} ${what}`;
  return max === undefined ? "" : `at most ${max} ${what}`;
}
