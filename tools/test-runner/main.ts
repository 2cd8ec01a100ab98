import { availableParallelism } from "node:os";
import { dirname } from "node:path";
import { parseArgs } from "node:util";
import { onParentGone } from "../parent.ts";
import { findTestFiles } from "./discover.ts";
import { runAll } from "./run-all.ts";

const root = dirname(dirname(import.meta.dirname));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    jobs: { type: "string", default: String(Math.min(4, availableParallelism())) },
    "tap-timeout": { type: "string", default: "120" },
    "kill-after": { type: "string", default: "300" },
  },
});
const { files, unknown } = findTestFiles(root, positionals);
for (const wanted of unknown) {
  console.error(`no test file fits "${wanted}"; give a file, a folder, or a part of a path`);
}
if (unknown.length > 0) {
  process.exit(64);
}
const run = runAll({
  root,
  files,
  withChecks: positionals.length === 0,
  jobs: Number(values.jobs),
  limits: {
    tapTimeoutMs: Number(values["tap-timeout"]) * 1000,
    killAfterMs: Number(values["kill-after"]) * 1000,
  },
  write: (text) => process.stdout.write(text),
});
onParentGone(() => stopAndExit(1));
process.on("SIGINT", () => stopAndExit(130));
process.on("SIGTERM", () => stopAndExit(143));
process.on("SIGHUP", () => stopAndExit(129));
process.exitCode = (await run.finished).failed === 0 ? 0 : 1;

function stopAndExit(code: number): never {
  run.stop();
  process.exit(code);
}
