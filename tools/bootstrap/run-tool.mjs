import { spawn } from "node:child_process";
import { hopeless } from "./failure.mjs";

const outputBytesMax = 256 * 1024;
const stillWorkingMs = 15_000;

/**
 * Runs a package manager to its end with its output held back: it is wanted only on failure.
 * @param {object} options
 * @param {string} options.executable
 * @param {readonly string[]} options.args
 * @param {string} options.cwd
 * @param {NodeJS.ProcessEnv} options.env
 * @param {(line: string) => void} options.report prints a progress line
 * @returns {Promise<{ok: boolean, output: string}>} never rejects; a tool that cannot start is `ok: false`
 */
export function runTool({ executable, args, cwd, env, report }) {
  return new Promise((resolve) => {
    const startedMs = Date.now();
    let output = "";
    const child = spawn(executable, args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    const progress = setInterval(() => {
      report(`still working (${Math.round((Date.now() - startedMs) / 1000)} s)`);
    }, stillWorkingMs);
    const stop = stopWithUs(child);

    /** @param {Buffer} chunk */
    const keep = (chunk) => {
      output = (output + chunk.toString()).slice(-outputBytesMax);
      if (hopeless.test(output)) {
        child.kill("SIGTERM");
      }
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);

    /** @param {boolean} ok */
    const settle = (ok) => {
      clearInterval(progress);
      stop();
      resolve({ ok, output });
    };
    child.on("error", (error) => {
      output += `\n${error.message}`;
      settle(false);
    });
    child.on("close", (code) => settle(code === 0));
  });
}

/**
 * A signal that ends the bootstrap ends the tool too, and then the bootstrap in the same way.
 * @param {import("node:child_process").ChildProcess} child
 * @returns {() => void} takes the handlers off
 */
function stopWithUs(child) {
  /** @type {NodeJS.Signals[]} */
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  /** @param {NodeJS.Signals} signal */
  const onSignal = (signal) => {
    child.kill("SIGTERM");
    takeOff();
    process.kill(process.pid, signal);
  };
  const takeOff = () => {
    for (const signal of signals) {
      process.off(signal, onSignal);
    }
  };
  for (const signal of signals) {
    process.on(signal, onSignal);
  }
  return takeOff;
}
