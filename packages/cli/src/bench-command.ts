import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { exitConfig } from "@baton/service-host";

const benchFolder = fileURLToPath(new URL("../../../bench/", import.meta.url));

/** Runs bench/NAME.ts in a process of its own, so that one bench's heap is not another's. */
export async function runBench(argv: readonly string[]): Promise<number> {
  const [name, ...rest] = argv;
  const names = readdirSync(benchFolder)
    .filter((each) => each.endsWith(".bench.ts"))
    .map((each) => each.slice(0, -".bench.ts".length));
  const file = join(benchFolder, `${name}.bench.ts`);
  if (name === undefined || name === "--help" || !existsSync(file)) {
    const text = `Usage: npm run bench -- NAME [options]\n\nBenches: ${names.join(", ")}\nEach prints a table, then as its last line one JSON object of its figures.\n`;
    (name === "--help" ? process.stdout : process.stderr).write(text);
    return name === "--help" ? 0 : exitConfig;
  }
  const child = spawn(process.execPath, [file, ...rest], { stdio: "inherit" });
  return new Promise((resolve) => {
    child.on("exit", (code) => resolve(code ?? 1));
  });
}
