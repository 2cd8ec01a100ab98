import { existsSync } from "node:fs";
import { basename, delimiter, join } from "node:path";
import { BootstrapFailure, exitCodes, explainFailure } from "./failure.mjs";
import { runTool } from "./run-tool.mjs";

/** @typedef {import("./toolchain.mjs").Host} Host */

/**
 * npm with every setting that could spoil a plain install given explicitly (a `.npmrc` may say
 * `global`, `omit=optional`, `dry-run`, `package-lock-only` …); registry, proxy and certificates stay
 * the user's.
 * @param {Host} host
 * @param {{folder: string, step: string, spec: string}} options
 */
export async function npmInstall(host, { folder, step, spec }) {
  const npm = findNpm();
  const { ok, output } = await runTool({
    executable: npm.executable,
    args: [
      ...npm.args,
      "install",
      spec,
      `--prefix=${folder}`,
      "--global=false",
      "--location=project",
      "--no-workspaces",
      "--install-strategy=hoisted",
      "--include=optional",
      "--dry-run=false",
      "--package-lock-only=false",
      "--no-package-lock",
      "--no-save",
      "--no-audit",
      "--no-fund",
      "--no-bin-links",
      "--ignore-scripts",
      "--loglevel=warn",
      "--fetch-retries=2",
      "--fetch-retry-mintimeout=1000",
      "--fetch-retry-maxtimeout=10000",
    ],
    cwd: folder,
    env: process.env,
    report: host.report,
  });
  if (!ok) {
    throw explainFailure({ step, output, root: host.root });
  }
}

/** @returns {{executable: string, args: string[]}} */
function findNpm() {
  const runBy = process.env.npm_execpath;
  if (runBy !== undefined && basename(runBy) === "npm-cli.js" && existsSync(runBy)) {
    return { executable: process.execPath, args: [runBy] };
  }
  const npm = onPath("npm");
  if (npm === null) {
    throw new BootstrapFailure(
      "npm is not on PATH, and it is needed to fetch Node or pnpm. Install npm, or install Node 22.19 or newer and pnpm 12 yourself.",
      exitCodes.unavailable,
    );
  }
  return { executable: npm, args: [] };
}

/**
 * First file of this name on PATH.
 * @param {string} name
 * @returns {string | null}
 */
export function onPath(name) {
  for (const folder of (process.env.PATH ?? "").split(delimiter)) {
    const file = join(folder, name);
    if (folder !== "" && existsSync(file)) {
      return file;
    }
  }
  return null;
}
