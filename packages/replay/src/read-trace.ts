import { createReadStream } from "node:fs";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { parseTraceRow } from "./parse-trace-row.ts";
import type { TraceRow } from "./trace-row.ts";

export type TraceSource =
  | { readonly path: string }
  | { readonly name: string; readonly lines: Iterable<string> };

/** A row of a million tokens has 2,000 ids, some 20 KB; a longer line is another kind of file. */
const lineCharactersMax = 16 * 1024 * 1024;

/**
 * All rows, or the first error, so that nothing is sent of a trace that is broken further down.
 * Reads as a stream and stops after `limit` rows (null: all). Blank lines are skipped.
 * Errors: BATON_TRACE_INVALID, also for a file that cannot be read or has no row.
 */
export async function readTrace(
  source: TraceSource,
  options: { readonly limit: number | null },
): Promise<Outcome<readonly TraceRow[], BatonError>> {
  const file = "path" in source ? source.path : source.name;
  const rows: TraceRow[] = [];
  let line = 0;
  try {
    for await (const text of "path" in source ? linesOf(source.path) : source.lines) {
      if (rows.length === options.limit) break;
      line++;
      if (text.trim() === "") continue;
      const previousTimestampMs = rows.at(-1)?.timestampMs ?? null;
      const row = parseTraceRow(text, { file, line, previousTimestampMs });
      if (!row.ok) return row;
      rows.push(row.value);
    }
  } catch (error) {
    if (!(error instanceof Error && ("code" in error || error instanceof RangeError))) throw error;
    return fail(batonError("BATON_TRACE_INVALID", `${file}: ${error.message}`));
  }
  if (rows.length > 0) return ok(rows);
  return fail(batonError("BATON_TRACE_INVALID", `${file}: there is no row`));
}

async function* linesOf(path: string): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of createReadStream(path, { encoding: "utf8" })) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop()!;
    if (rest.length > lineCharactersMax) {
      throw new RangeError(`a line is longer than ${lineCharactersMax} characters`);
    }
    yield* lines;
  }
  if (rest !== "") yield rest;
}
