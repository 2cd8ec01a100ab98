import { checks, checkText, runCheck } from "../check/checks.ts";
import { type Counts, countsText, fileText } from "./print.ts";
import { killGroup } from "./process-group.ts";
import { type FileLimits, type FileResult, runFile } from "./run-file.ts";

export interface RunOptions {
  readonly root: string;
  readonly files: readonly string[];
  /** Whether types, lint, tidy and generated docs count as tests too. */
  readonly withChecks: boolean;
  /** Files that run at the same time. */
  readonly jobs: number;
  readonly limits: FileLimits;
  readonly write: (text: string) => void;
}

export interface Run {
  readonly finished: Promise<Counts>;
  /** Ends every running test file with all that it has started. */
  readonly stop: () => void;
}

/** Runs checks and test files; the last line that it writes is `N passed, N failed`. */
export function runAll(options: RunOptions): Run {
  const groups = new Set<number>();
  let isStopped = false;
  const stop = () => {
    isStopped = true;
    for (const group of groups) {
      killGroup(group, "SIGKILL");
    }
  };
  const finished = (async () => {
    const failed: string[] = [];
    const counts = { passed: 0, failed: 0, skipped: 0 };
    if (options.withChecks) {
      await countChecks(options, counts, failed);
    }
    const open = [...options.files];
    const work = async () => {
      for (let file = open.shift(); file !== undefined && !isStopped; file = open.shift()) {
        const result = await runFile(file, { ...options, groups });
        options.write(fileText(result));
        countFile(result, counts, failed);
      }
    };
    await Promise.all(Array.from({ length: options.jobs }, work));
    if (counts.passed + counts.failed + counts.skipped === 0) {
      counts.failed = 1;
      failed.push("no test ran");
    }
    const names = failed.map((name) => `failed: ${name}\n`).join("");
    const skipped = counts.skipped > 0 ? `${counts.skipped} skipped, named above\n` : "";
    options.write(`\n${names}${skipped}${countsText(counts)}\n`);
    return counts;
  })();
  return { finished, stop };
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

async function countChecks(
  { root, write }: RunOptions,
  counts: Mutable<Counts>,
  failed: string[],
): Promise<void> {
  for (const check of checks) {
    const result = await runCheck(root, check);
    write(checkText(result));
    counts[result.isOk ? "passed" : "failed"] += 1;
    if (!result.isOk) {
      failed.push(check.name);
    }
  }
}

function countFile(result: FileResult, counts: Mutable<Counts>, failed: string[]): void {
  const failures = result.failures.length + result.problems.length;
  counts.passed += result.passed;
  counts.failed += failures;
  counts.skipped += result.skips.length;
  if (failures > 0) {
    failed.push(result.file);
  }
}
