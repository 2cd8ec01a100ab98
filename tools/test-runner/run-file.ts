import { spawn } from "node:child_process";
import { once } from "node:events";
import { killGroup, leftInGroup } from "./process-group.ts";
import { TapReader, type TapReport } from "./tap-report.ts";

const stderrCharsMax = 20_000;
const exitGraceMs = 2_000;

export interface FileLimits {
  /** tap ends what runs then and tells where it hangs. */
  readonly tapTimeoutMs: number;
  /** A process that is still there then, is killed. */
  readonly killAfterMs: number;
}

export interface FileResult extends TapReport {
  readonly file: string;
  readonly seconds: number;
  /** End of what the file wrote to stderr. */
  readonly stderr: string;
}

/**
 * Runs one test file as a process group of its own and reads its TAP. The file is spawned directly:
 * `tap run` drops the results of files that follow a timed out one. A crash, a hang, processes left
 * behind and a file without tests are problems of the report.
 */
export async function runFile(
  file: string,
  options: { readonly root: string; readonly limits: FileLimits; readonly groups: Set<number> },
): Promise<FileResult> {
  const { root, limits, groups } = options;
  const startedMs = performance.now();
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", file], {
    cwd: root,
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, TAP_TIMEOUT: String(limits.tapTimeoutMs / 1000) },
  });
  const group = child.pid ?? 0;
  groups.add(group);
  const reader = new TapReader();
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => reader.write(chunk));
  child.stderr.on("data", (chunk: Buffer) => {
    stderr = (stderr + chunk).slice(-stderrCharsMax);
  });

  let isLate = false;
  const killer = setTimeout(() => {
    isLate = true;
    killGroup(group, "SIGKILL");
  }, limits.killAfterMs);
  const [code, signal] = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
  clearTimeout(killer);
  const left = await leftInGroup(group, exitGraceMs);
  killGroup(group, "SIGKILL");
  groups.delete(group);
  await streamsEnd(child);

  const report = reader.end();
  const seen = report.passed + report.failures.length + report.skips.length;
  const problems = [...report.problems];
  if (isLate) {
    problems.push(`killed: no end after ${limits.killAfterMs / 1000} s`);
  } else if (signal !== null) {
    problems.push(`ended by ${signal}`);
  } else if (code !== 0 && report.failures.length === 0) {
    problems.push(`exit code ${code}`);
  } else if (seen === 0) {
    problems.push("no test ran");
  }
  if (left.length > 0) {
    problems.push(`left running: ${left.join(", ")}`);
  }
  const seconds = (performance.now() - startedMs) / 1000;
  return { ...report, problems, file, seconds, stderr };
}

/** A grandchild in another group may hold the pipes open; its words are not waited for. */
async function streamsEnd(child: ReturnType<typeof spawn>): Promise<void> {
  const deadline = AbortSignal.timeout(exitGraceMs);
  for (const stream of [child.stdout, child.stderr]) {
    if (stream !== null && !stream.closed) {
      await once(stream, "close", { signal: deadline }).catch(() => stream.destroy());
    }
  }
}
