import { runCli } from "./run-cli.ts";

const code = await runCli(process.argv.slice(2));
process.exitCode = code;
// A simulated engine dies as a real one does: at once, whatever is still open.
if (process.argv[2] === "engine-sim") process.exit(code);
