import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Test } from "tap";
import { until } from "./until.ts";

const main = fileURLToPath(import.meta.resolve("@baton/cli").replace("index.ts", "main.ts"));

/** A `baton` command as a process of its own; it ends with the test. */
export class Command {
  readonly child: ChildProcess;
  stdout = "";
  stderr = "";

  constructor(t: Test, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.child = spawn(process.execPath, [main, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...env },
    });
    this.child.stdout!.on("data", (bytes: Buffer) => {
      this.stdout += bytes.toString();
    });
    this.child.stderr!.on("data", (bytes: Buffer) => {
      this.stderr += bytes.toString();
    });
    t.teardown(async () => {
      if (this.isEnded()) return;
      this.child.kill("SIGKILL");
      await once(this.child, "exit");
    });
  }

  isEnded(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  /** Waits for a match in what it printed so far. */
  async said(pattern: RegExp): Promise<RegExpExecArray> {
    return until(() => {
      const match = pattern.exec(this.stdout) ?? pattern.exec(this.stderr);
      if (match === null && this.isEnded()) throw new Error(`it ended: ${this.stderr}`);
      return match;
    }, `${pattern} in the output`);
  }

  /** Exit code, once its output is whole. */
  async ended(): Promise<number | null> {
    if (!this.isEnded()) await once(this.child, "close");
    return this.child.exitCode;
  }
}

/** Whether a process of this id is there. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
