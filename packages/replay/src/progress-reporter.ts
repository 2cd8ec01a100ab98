import type { ReplayProgress } from "./replay-tally.ts";

interface ProgressOutput {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

const quietIntervalMs = 5_000;
const barCharacters = 20;

/** An `onProgress` for runReplay: a line that redraws itself on a terminal, else one each 5 s. */
export function createProgressReporter(output: ProgressOutput): (progress: ReplayProgress) => void {
  let nextMs = 0;
  return (progress) => {
    if (output.isTTY === true) {
      const line = progressLine(progress).slice(0, (output.columns ?? 80) - 1);
      output.write(`\r\u001b[2K${line}${progress.isOver ? "\n" : ""}`);
    } else if (progress.isOver || progress.elapsedMs >= nextMs) {
      output.write(`${progressLine(progress)}\n`);
      nextMs = progress.elapsedMs + quietIntervalMs;
    }
  };
}

export function progressLine(progress: ReplayProgress): string {
  const { total, sent, done, errors, etaMs, ttftMsP50 } = progress;
  const full = total === 0 ? barCharacters : Math.floor((done / total) * barCharacters);
  const bar = "#".repeat(full).padEnd(barCharacters, ".");
  const left = etaMs === null ? "" : `, ${Math.ceil(etaMs / 1_000)} s left`;
  const ttft = ttftMsP50 === null ? "" : `, TTFT p50 ${Math.round(ttftMsP50)} ms`;
  return `[${bar}] ${done}/${total} done, ${sent} sent, ${errors} failed${left}${ttft}`;
}
