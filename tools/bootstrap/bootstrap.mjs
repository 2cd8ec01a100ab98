/**
 * Entry of every `npm run` command: makes sure of Node, pnpm and the dependencies, then runs the
 * command. Plain JavaScript without dependencies, for Node 18 and newer.
 */
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { BootstrapFailure, exitCodes, explainFailure } from "./failure.mjs";
import { launch, targets } from "./launch.mjs";
import { withLock } from "./lock.mjs";
import { ensureNode, ensurePnpm, findNode } from "./toolchain.mjs";
import { installWorkspace, isInstalled } from "./workspace.mjs";

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/** @param {string} line */
function report(line) {
  process.stderr.write(`baton: ${line}\n`);
}

/** @returns {Promise<string>} path of the Node to run the command with */
async function prepare() {
  const found = findNode(root);
  if (found !== null && isInstalled(root)) {
    return found;
  }
  return withLock(join(root, ".baton", "bootstrap.lock"), {
    onWait: (holder) => report(`waiting for ${holder}, which is installing …`),
    work: async () => {
      const node = await ensureNode({ root, report });
      if (!isInstalled(root)) {
        const pnpm = await ensurePnpm({ root, report });
        await installWorkspace({ root, node, pnpm, report });
      }
      return node;
    },
  });
}

/**
 * @param {string | undefined} command
 * @returns {command is keyof typeof targets}
 */
function isCommand(command) {
  return command !== undefined && Object.hasOwn(targets, command);
}

/** @param {unknown} error */
function explain(error) {
  if (error instanceof BootstrapFailure) {
    return error;
  }
  if (error instanceof Error && "syscall" in error) {
    return explainFailure({ step: "prepare the checkout", output: error.message, root });
  }
  throw error;
}

const [command, ...args] = process.argv.slice(2);
if (isCommand(command)) {
  try {
    launch({ root, command, args, node: await prepare() });
  } catch (error) {
    const { message, exitCode } = explain(error);
    report(message);
    process.exitCode = exitCode;
  }
} else {
  report(`unknown command "${command ?? ""}"; there are: ${Object.keys(targets).join(", ")}`);
  process.exitCode = exitCodes.usage;
}
