import type { ReplayReport } from "./build-report.ts";
import type { Percentiles } from "./percentiles.ts";

const columnCharacters = 12;
const nameCharacters = 34;

/** The report for people, in plain words; `-` is what nobody could tell. */
export function formatReport(report: ReplayReport): string {
  const failed = report.requests - report.ok;
  const lines = [
    `${report.requests} requests, ${report.ok} well ended, ${failed} failed, ` +
      `in ${report.wallSeconds.toFixed(1)} s${report.speed === 1 ? "" : ` at speed ${report.speed}`}`,
    "",
    row("ms of trace time", "p50", "p90", "p99"),
    times("time to first token", report.ttftMs),
    times("between tokens", report.itlMs),
    times("between tokens, mean of a request", report.tpotMs),
    times("whole answer", report.e2eMs),
    row("client was late", "", "", decimal(report.clientLatenessMs.p99, 1)),
    "",
    row("cached share of prompt tokens", percent(report.hitRatio)),
    row("  with one endless cache", percent(report.idealHitRatio)),
    row("prefills of a shared block", decimal(report.prefillsPerSharedBlock, 2)),
    row("busiest worker, by the mean", decimal(report.workerTokensMaxOverMean, 2)),
    row("KV moved between workers", bytes(report.bytesMoved)),
  ];
  if (report.perWorker.length > 0) {
    lines.push("", row("tokens of prompts", "computed", "cached"));
    for (const worker of report.perWorker) {
      lines.push(row(worker.workerId, whole(worker.computedTokens), whole(worker.cachedTokens)));
    }
  }
  if (failed > 0) lines.push("", "failed:");
  for (const [code, count] of Object.entries(report.errors)) {
    lines.push(`  ${String(count).padStart(6)}  ${code}: ${report.errorExamples[code]}`);
  }
  if (report.notes.length > 0) lines.push("", ...report.notes);
  return `${lines.join("\n")}\n`;
}

function row(name: string, ...cells: readonly string[]): string {
  const columns = cells.map((cell) => cell.padStart(columnCharacters));
  return `${name.padEnd(nameCharacters)}${columns.join("")}`.trimEnd();
}

function times(name: string, of: Percentiles): string {
  return row(name, decimal(of.p50, 1), decimal(of.p90, 1), decimal(of.p99, 1));
}

function decimal(value: number | null, digits: number): string {
  return value === null ? "-" : value.toFixed(digits);
}

function whole(value: number | null): string {
  return value === null ? "-" : value.toLocaleString("en-US");
}

function percent(value: number | null): string {
  return value === null ? "-" : `${(value * 100).toFixed(1)} %`;
}

function bytes(value: number | null): string {
  if (value === null) return "-";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  let scaled = value;
  while (scaled >= 1_000 && unit < units.length - 1) {
    scaled /= 1_000;
    unit++;
  }
  return `${scaled.toFixed(unit === 0 ? 0 : 1)} ${units[unit]}`;
}
