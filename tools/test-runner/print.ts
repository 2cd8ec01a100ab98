import type { FileResult } from "./run-file.ts";
import type { Failure } from "./tap-report.ts";

const margin = "     ";
/** Told by other lines, or of no use to a reader. */
const silentKeys = new Set(["at", "stack", "diff", "source", "compare", "test", "tapCaught"]);

/** One line for a file that passed, with its skipped tests; everything for one that did not. */
export function fileText(result: FileResult): string {
  const { file, passed, failures, skips, problems, extra, stderr, seconds } = result;
  const failed = failures.length + problems.length;
  const counts = countsText({ passed, failed, skipped: skips.length });
  const lines = [`${failed === 0 ? "ok  " : "FAIL"} ${file}  ${counts}  ${seconds.toFixed(1)} s`];
  lines.push(...skips.map(({ name, reason }) => `${margin}skipped: ${name} (${reason})`));
  lines.push(...failures.map(failureText));
  lines.push(...problems.map((problem) => `${margin}✗ ${problem}`));
  if (failed > 0 && extra.trim() !== "") {
    lines.push(`${margin}stdout:`, indent(extra.trimEnd()));
  }
  if (failed > 0 && stderr.trim() !== "") {
    lines.push(`${margin}stderr:`, indent(stderr.trimEnd()));
  }
  return `${lines.join("\n")}\n`;
}

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

export function countsText({ passed, failed }: Counts): string {
  return `${passed} passed, ${failed} failed`;
}

function failureText({ name, diagnostics }: Failure): string {
  const lines = [`${margin}✗ ${name.replaceAll("\n", `\n${margin}  `)}`];
  if (diagnostics !== null) {
    const { diff, stack } = diagnostics;
    const at = place(diagnostics["at"]);
    if (at !== null) {
      lines.push(`${margin}  at ${at}`);
    }
    if (typeof diff === "string") {
      lines.push(indent(diff.trimEnd(), 2));
    }
    for (const [key, value] of Object.entries(diagnostics)) {
      if (!silentKeys.has(key)) {
        lines.push(
          indent(`${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`, 2),
        );
      }
    }
    if (typeof stack === "string") {
      lines.push(indent(stack.trimEnd(), 2));
    }
  }
  return lines.join("\n");
}

function place(at: unknown): string | null {
  if (typeof at !== "object" || at === null || !("fileName" in at)) {
    return null;
  }
  const line = "lineNumber" in at ? `:${at.lineNumber}` : "";
  return `${at.fileName}${line}`;
}

function indent(text: string, more = 0): string {
  return text.replace(/^(?=.)/gm, margin + " ".repeat(more));
}
