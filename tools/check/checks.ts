import { spawn } from "node:child_process";
import { once } from "node:events";

export interface Check {
  readonly name: string;
  /** Script and arguments, run with this Node in the root. */
  readonly args: readonly string[];
  /** How to mend what it finds. */
  readonly remedy: string;
}

export interface CheckResult {
  readonly check: Check;
  readonly isOk: boolean;
  readonly seconds: number;
  /** stdout and stderr together. */
  readonly output: string;
}

/** All that CI demands of the sources besides passing tests. */
export const checks: readonly Check[] = [
  {
    name: "types",
    args: ["node_modules/typescript/bin/tsc", "--noEmit"],
    remedy: "mend the errors",
  },
  {
    name: "lint and format",
    args: [
      "node_modules/@biomejs/biome/bin/biome",
      "check",
      "--error-on-warnings",
      "--max-diagnostics=50",
    ],
    remedy: "`npx biome check --write` mends most of it",
  },
  { name: "tidy", args: ["tools/tidy/main.ts"], remedy: "each line says what to write instead" },
  {
    name: "generated docs",
    args: ["tools/docs/main.ts", "--check"],
    remedy: "run `npm run docs` and commit the result",
  },
];

/** Runs one check to its end; a check that cannot start is a failed one. */
export async function runCheck(root: string, check: Check): Promise<CheckResult> {
  const startedMs = performance.now();
  const child = spawn(process.execPath, check.args, {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const keep = (chunk: Buffer) => {
    output += chunk;
  };
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  const [code] = await once(child, "close");
  const seconds = (performance.now() - startedMs) / 1000;
  return { check, isOk: code === 0, seconds, output };
}

/** Result of a check as text: one line, and what it found when it failed. */
export function checkText({ check, isOk, seconds, output }: CheckResult): string {
  const line = `${isOk ? "ok  " : "FAIL"} ${check.name}  ${seconds.toFixed(1)} s\n`;
  return isOk ? line : `${line}${indent(output.trim())}\n     → ${check.remedy}\n`;
}

function indent(text: string): string {
  return text.replace(/^(?=.)/gm, "     ");
}
