import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { BootstrapFailure, exitCodes, explainFailure } from "./failure.mjs";
import { runTool } from "./run-tool.mjs";

/** Lies in node_modules, so that it goes when node_modules goes. */
const stampFile = "node_modules/.baton-installed.json";

/**
 * Whether node_modules is the outcome of a finished install of exactly these package.json and lock
 * files. Costs a few milliseconds: it runs before every command.
 * @param {string} root
 */
export function isInstalled(root) {
  try {
    return readFileSync(join(root, stampFile), "utf8") === currentStamp(root);
  } catch {
    return false;
  }
}

/**
 * @param {object} options
 * @param {string} options.root
 * @param {string} options.pnpm path of pnpm
 * @param {string} options.node path of the Node that will run the workspace
 * @param {(line: string) => void} options.report
 */
export async function installWorkspace({ root, pnpm, node, report }) {
  const startedMs = Date.now();
  report("installing dependencies …");
  const { ok, output } = await runTool({
    executable: pnpm,
    args: ["install", "--frozen-lockfile", "--prod=false", "--optional", "--reporter=append-only"],
    cwd: root,
    env: pnpmEnvironment(node),
    report,
  });
  if (!ok) {
    throw explainFailure({ step: "install the dependencies", output, root });
  }
  try {
    writeFileSync(join(root, stampFile), currentStamp(root));
  } catch (error) {
    throw new BootstrapFailure(
      `pnpm reported success, but ${root}/node_modules is not complete: ${error}. Remove node_modules and repeat the command.`,
      exitCodes.io,
    );
  }
  report(`dependencies installed in ${((Date.now() - startedMs) / 1000).toFixed(1)} s`);
}

/**
 * A hash of what decides the install (lock file, workspace file, every package.json, platform), and
 * pnpm's own record of its last run, which changes when somebody runs pnpm by hand.
 * @param {string} root
 * @returns {string}
 * @throws when node_modules, or that of a package with dependencies, is missing
 */
function currentStamp(root) {
  const hash = createHash("sha256");
  hash.update(`${process.platform}-${process.arch}\n`);
  for (const file of ["pnpm-lock.yaml", "pnpm-workspace.yaml"]) {
    hash.update(`${file}\n`).update(readFileSync(join(root, file)));
  }
  for (const file of manifests(root)) {
    const text = readFileSync(join(root, file), "utf8");
    hash.update(`${file}\n`).update(text);
    const { dependencies = {}, devDependencies = {} } = JSON.parse(text);
    const hasDependencies = Object.keys({ ...dependencies, ...devDependencies }).length > 0;
    const modules = join(root, dirname(file), "node_modules");
    if (hasDependencies && !existsSync(modules)) {
      throw new Error(`${modules} is missing`);
    }
  }
  const record = statSync(join(root, "node_modules", ".modules.yaml"));
  return JSON.stringify({ hash: hash.digest("hex"), installedMs: record.mtimeMs });
}

/**
 * @param {string} root
 * @returns {string[]} package.json of the root and of every workspace package, sorted
 */
function manifests(root) {
  const found = ["package.json"];
  for (const pattern of workspacePatterns(
    readFileSync(join(root, "pnpm-workspace.yaml"), "utf8"),
  )) {
    const folder = pattern.replace(/\/\*$/, "");
    const folders =
      folder === pattern || !existsSync(join(root, folder))
        ? [folder]
        : readdirSync(join(root, folder)).map((name) => `${folder}/${name}`);
    found.push(...folders.map((name) => `${name}/package.json`));
  }
  return found.filter((file) => existsSync(join(root, file))).sort();
}

/**
 * The `packages:` list of pnpm-workspace.yaml; the dependency-free bootstrap has no YAML parser, and
 * this workspace uses `FOLDER` and `FOLDER/*` only.
 * @param {string} text
 */
function workspacePatterns(text) {
  const list = /^packages:\n((?:[ \t]+-.*\n)+)/m.exec(text)?.[1] ?? "";
  return [...list.matchAll(/-\s*["']?([^"'\s]+)/g)].map((match) => match[1] ?? "");
}

/**
 * pnpm does not read npm's environment variables; where the user reaches the registry must still be
 * the same for both.
 * @param {string} node
 * @returns {NodeJS.ProcessEnv}
 */
function pnpmEnvironment(node) {
  /** @type {NodeJS.ProcessEnv} */
  const env = {
    pnpm_config_confirm_modules_purge: "false",
    pnpm_config_fetch_retries: "2",
    pnpm_config_fetch_retry_mintimeout: "1000",
    pnpm_config_fetch_retry_maxtimeout: "10000",
    pnpm_config_node_linker: "isolated",
    ...process.env,
    PATH: `${dirname(node)}:${process.env.PATH ?? ""}`,
  };
  for (const key of ["registry", "https_proxy", "proxy", "noproxy", "cafile", "strict_ssl"]) {
    const value = process.env[`npm_config_${key}`];
    if (value !== undefined && value !== "") {
      env[`pnpm_config_${key}`] ??= value;
    }
  }
  return env;
}
