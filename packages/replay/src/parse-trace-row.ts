import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { jsonErrorColumn } from "./json-error-column.ts";
import { type TraceRow, traceBlockTokens } from "./trace-row.ts";

interface RowPlace {
  readonly file: string;
  /** From 1. */
  readonly line: number;
  /** Of the row before; null for the first. */
  readonly previousTimestampMs: number | null;
}

/** Ids seed a 32-bit lane of the token generator. */
const hashIdMax = 0xffff_ffff;

class BadField extends Error {
  readonly field: string;

  constructor(field: string, reason: string) {
    super(reason);
    this.field = field;
  }
}

/**
 * One line of a Mooncake trace, with the names that its relatives use. Error: BATON_TRACE_INVALID
 * with `file:line:column` for what is no JSON, else with the field and the reason.
 */
export function parseTraceRow(text: string, place: RowPlace): Outcome<TraceRow, BatonError> {
  const where = `${place.file}:${place.line}`;
  const column = isJson(text) ? null : jsonErrorColumn(text);
  if (column !== null) {
    const what = column > text.length ? "the line ends within its JSON" : "this is not JSON";
    return fail(batonError("BATON_TRACE_INVALID", `${where}:${column}: ${what}`));
  }
  const value: unknown = JSON.parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return fail(batonError("BATON_TRACE_INVALID", `${where}:1: a row is a JSON object`));
  }
  try {
    return ok(toRow(new Map(Object.entries(value)), place));
  } catch (error) {
    if (!(error instanceof BadField)) throw error;
    const message = `${where}: field ${error.field}: ${error.message}`;
    return fail(batonError("BATON_TRACE_INVALID", message, { param: error.field }));
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function toRow(fields: ReadonlyMap<string, unknown>, place: RowPlace): TraceRow {
  const timestamp = pick(fields, "timestamp", "created_time");
  const timestampMs = integer(timestamp, 0);
  const before = place.previousTimestampMs;
  if (before !== null && timestampMs < before) {
    throw new BadField(timestamp.name, `${timestampMs} is before the ${before} of the row above`);
  }
  const inputTokens = integer(pick(fields, "input_length", "input_tokens"), 1);
  const outputTokens = integer(pick(fields, "output_length", "output_tokens"), 1);
  const hashIds = fields.get("hash_ids");
  if (!Array.isArray(hashIds)) throw new BadField("hash_ids", "is not a list");
  for (const [index, id] of hashIds.entries()) {
    integer({ name: `hash_ids[${index}]`, value: id }, 0, hashIdMax);
  }
  const blocks = Math.ceil(inputTokens / traceBlockTokens);
  if (hashIds.length !== blocks) {
    const rule = `${inputTokens} input tokens in blocks of ${traceBlockTokens}`;
    throw new BadField("hash_ids", `has ${hashIds.length} ids, ${rule} need ${blocks}`);
  }
  const delay = pick(fields, "delay", "delay_ms");
  return {
    line: place.line,
    timestampMs,
    inputTokens,
    outputTokens,
    hashIds,
    sessionId: sessionId(fields.get("session_id") ?? null),
    delayMs: (delay.value ?? null) === null ? null : integer(delay, 0),
  };
}

interface Field {
  readonly name: string;
  readonly value: unknown;
}

function pick(fields: ReadonlyMap<string, unknown>, name: string, otherName: string): Field {
  if (!fields.has(otherName)) return { name, value: fields.get(name) };
  if (fields.has(name)) throw new BadField(otherName, `is given beside ${name}`);
  return { name: otherName, value: fields.get(otherName) };
}

function integer(field: Field, min: number, max = Number.MAX_SAFE_INTEGER): number {
  const { name, value } = field;
  if (value === undefined) throw new BadField(name, "is missing");
  if (typeof value !== "number") throw new BadField(name, `is not a number: ${excerpt(value)}`);
  if (!Number.isInteger(value)) throw new BadField(name, `is not an integer: ${value}`);
  if (value < min || value > max) throw new BadField(name, `is not in ${min}..${max}: ${value}`);
  return value;
}

function sessionId(value: unknown): string | null {
  if (value === null) return null;
  if (typeof value === "string" || typeof value === "number") return String(value);
  throw new BadField("session_id", `is neither text nor a number: ${excerpt(value)}`);
}

function excerpt(value: unknown): string {
  return JSON.stringify(value).slice(0, 40);
}
