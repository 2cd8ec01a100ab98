import { spawn } from "node:child_process";
import { constants } from "node:os";
import { delimiter, dirname, join } from "node:path";

/** Command of the root package.json → the source that carries it out, and its first arguments. */
export const targets = {
  start: ["packages/cli/src/main.ts", "start"],
  baton: ["packages/cli/src/main.ts"],
  bench: ["packages/cli/src/main.ts", "bench"],
  test: ["tools/test-runner/main.ts"],
  check: ["tools/check/main.ts"],
  docs: ["tools/docs/main.ts"],
};

const npmPollMs = 500;

/**
 * Runs the target with the terminal as it is, until it ends; then this process ends in the same way.
 * The IPC channel carries no messages: the child sees `disconnect` when this process is gone, even
 * when it was killed.
 * @param {object} options
 * @param {string} options.root
 * @param {string} options.node
 * @param {keyof typeof targets} options.command
 * @param {readonly string[]} options.args
 */
export function launch({ root, node, command, args }) {
  const [source = "", ...fixed] = targets[command];
  const child = spawn(
    node,
    ["--disable-warning=ExperimentalWarning", join(root, source), ...fixed, ...args],
    {
      stdio: ["inherit", "inherit", "inherit", "ipc"],
      env: { ...process.env, PATH: `${dirname(node)}${delimiter}${process.env.PATH ?? ""}` },
    },
  );

  // A terminal sends Ctrl-C to the whole process group: passing it on would make it two.
  const isInTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
  process.on("SIGINT", () => isInTerminal || child.kill("SIGINT"));
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  process.on("SIGHUP", () => child.kill("SIGHUP"));
  terminateWithNpm(child);

  child.on("error", (error) => {
    process.stderr.write(`baton: cannot run ${node}: ${error.message}\n`);
    process.exit(71);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) {
      process.exit(code ?? 1);
    }
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
    // Where this process cannot die of it (PID 1 of a container), the shell's convention.
    setTimeout(() => process.exit(128 + constants.signals[signal]), 100);
  });
}

/**
 * npm killed outright tells nobody, and this process then belongs to another parent. Without npm that
 * means nothing: a shell may go and leave its background jobs running.
 * @param {import("node:child_process").ChildProcess} child
 */
function terminateWithNpm(child) {
  if (process.env.npm_lifecycle_event === undefined) {
    return;
  }
  const npm = process.ppid;
  setInterval(() => process.ppid === npm || child.kill("SIGTERM"), npmPollMs).unref();
}
