import type { LogFields } from "@baton/ports";
import { isSecretName, mask, maskText } from "./secret-mask.ts";

/** Deeper values, further entries and further text are cut, so that one line has a cap. */
const depthMax = 5;
const entriesMax = 100;

/** Keys that the line itself uses. */
const ownKeys = new Set(["level", "time", "service", "msg"]);

/**
 * Fields as plain JSON values, without secrets: text under a secret's name, and what `maskText`
 * finds in any text. Numbers are kept, so token counts are. Errors become name, message, stack,
 * code and cause. Never throws: what cannot be read is said to be unreadable.
 */
export function plainFields(fields: LogFields): Record<string, unknown> {
  const result: Record<string, unknown> = {};
  for (const key of Object.keys(fields).slice(0, entriesMax)) {
    const value = plainMember(fields, key, depthMax);
    if (value !== undefined) result[ownKeys.has(key) ? `${key}_` : key] = value;
  }
  return result;
}

function plainMember(owner: object, key: string, depth: number): unknown {
  try {
    const value = (owner as Record<string, unknown>)[key];
    if (isSecretName(key) && isSecretValue(value)) return mask;
    return plain(value, depth);
  } catch {
    return "(unreadable)";
  }
}

function isSecretValue(value: unknown): boolean {
  return (typeof value === "string" && value !== "") || Array.isArray(value);
}

function plain(value: unknown, depth: number): unknown {
  switch (typeof value) {
    case "string":
      return maskText(value);
    case "number":
      return Number.isFinite(value) ? value : String(value);
    case "bigint":
    case "symbol":
      return String(value);
    case "function":
      return `(function ${value.name})`;
    case "object":
      return value === null ? null : plainObject(value, depth);
    default:
      return value;
  }
}

function plainObject(value: object, depth: number): unknown {
  if (depth === 0) return Array.isArray(value) ? `(list of ${value.length})` : "(object)";
  if (value instanceof Error) return plainError(value, depth - 1);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (ArrayBuffer.isView(value)) return `(${value.byteLength} bytes)`;
  if (value instanceof Map) return plainObject(Object.fromEntries(value), depth);
  if (value instanceof Set) return plainObject([...value], depth);
  if (Array.isArray(value)) {
    const items = value.slice(0, entriesMax).map((item) => plain(item, depth - 1));
    return value.length > entriesMax ? [...items, `(${value.length - entriesMax} more)`] : items;
  }
  const keys = Object.keys(value);
  const entries = keys.slice(0, entriesMax).map((key) => [key, plainMember(value, key, depth - 1)]);
  return Object.fromEntries(entries);
}

function plainError(error: Error, depth: number): unknown {
  const { name, message, stack, code, cause } = error as Error & { code?: unknown };
  return {
    name,
    message: maskText(String(message)),
    ...(code === undefined ? {} : { code: plain(code, depth) }),
    ...(stack === undefined ? {} : { stack: maskText(String(stack)) }),
    ...(cause === undefined || depth === 0 ? {} : { cause: plain(cause, depth) }),
  };
}
