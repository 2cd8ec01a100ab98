/** Why a bootstrap step failed, as sysexits.h numbers it. */
export const exitCodes = { usage: 64, data: 65, unavailable: 69, cannotCreate: 73, io: 74 };

/** A failure with a text for the user: what happened, where, what to do. */
export class BootstrapFailure extends Error {
  /**
   * @param {string} message
   * @param {number} exitCode
   */
  constructor(message, exitCode) {
    super(message);
    this.name = "BootstrapFailure";
    this.exitCode = exitCode;
  }
}

/**
 * @typedef {object} Context
 * @property {string} step what was tried, e.g. "fetch Node 24.21.0"
 * @property {string} output the tool's own words, or the text of a system error
 * @property {string} root folder of the checkout
 */

/**
 * Known causes, the most certain first: a full disk also breaks connections, and a refused
 * connection also says "error". npm (errno names) and pnpm (Rust's sentences) word them differently.
 * @type {readonly {pattern: RegExp, exitCode: number, explain: (context: Context) => string}[]}
 */
const causes = [
  {
    pattern: /ENOSPC|EDQUOT|no space left on device|quota exceeded|os error 28\b/i,
    exitCode: exitCodes.io,
    explain: ({ root }) =>
      `the disk is full. Free about 1 GB for ${root} and the home folder's caches, then repeat the command.`,
  },
  {
    pattern: /EROFS|read-only file system|os error 30\b/i,
    exitCode: exitCodes.cannotCreate,
    explain: ({ root }) =>
      `the file system is read-only. Put the checkout (${root}) where it can be written.`,
  },
  {
    pattern: /\b(EEXIST|ENOTDIR)\b/,
    exitCode: exitCodes.cannotCreate,
    explain: ({ output }) =>
      `a file lies where a folder should be${pathIn(output) ? `: ${pathIn(output)}` : ""}. Remove it, then repeat the command.`,
  },
  {
    pattern: /\b(EACCES|EPERM)\b|permission denied|os error (1|13)\b/i,
    exitCode: exitCodes.cannotCreate,
    explain: ({ output, root }) =>
      `no permission to write ${pathIn(output) ?? root}. Make it writable for this user, then repeat the command.`,
  },
  {
    pattern: /OUTDATED_LOCKFILE|LOCKFILE_CONFIG_MISMATCH|frozen[- ](lockfile|installation)/i,
    exitCode: exitCodes.data,
    explain: () =>
      "pnpm-lock.yaml does not match the package.json files. Restore both from one commit, or run `pnpm install` after a wanted change.",
  },
  {
    pattern: /EINTEGRITY|_INTEGRITY|integrity check|sha512.*mismatch/i,
    exitCode: exitCodes.data,
    explain: () =>
      "a package's checksum differs from the lock file. Empty the registry mirror's or proxy's cache and repeat the command.",
  },
  {
    pattern: /\b407\b|proxy authentication/i,
    exitCode: exitCodes.unavailable,
    explain: () =>
      "the proxy asks for a password (407). Put user and password into HTTPS_PROXY (http://USER:PASSWORD@HOST:PORT).",
  },
  {
    pattern: /SELF_SIGNED_CERT|UNABLE_TO_|CERT_|certificate/i,
    exitCode: exitCodes.unavailable,
    explain: ({ output }) =>
      `the certificate of ${registryIn(output)} is not trusted. Behind a company proxy, set NODE_EXTRA_CA_CERTS=FILE and \`npm config set cafile FILE\`.`,
  },
  {
    pattern: /ENOTFOUND|EAI_AGAIN|dns error|failed to lookup/i,
    exitCode: exitCodes.unavailable,
    explain: ({ output }) =>
      `the name of ${registryIn(output)} cannot be resolved. ${networkAdvice}`,
  },
  {
    pattern: /ECONNREFUSED|connection refused/i,
    exitCode: exitCodes.unavailable,
    explain: ({ output }) => `nothing answers at ${registryIn(output)}. ${networkAdvice}`,
  },
  {
    pattern: /ETIMEDOUT|SOCKET_TIMEOUT|ECONNRESET|EHOSTUNREACH|ENETUNREACH|timed out|unreachable/i,
    exitCode: exitCodes.unavailable,
    explain: ({ output }) => `${registryIn(output)} does not answer in time. ${networkAdvice}`,
  },
  {
    pattern: /\bE40[13]\b|\b40[13] (unauthorized|forbidden)|ENEEDAUTH/i,
    exitCode: exitCodes.unavailable,
    explain: ({ output }) =>
      `${registryIn(output)} refuses access. Log in with \`npm login\`, or choose another registry with \`npm config set registry URL\`.`,
  },
  {
    pattern: /ETARGET|\bE404\b|404 not found|ENOTCACHED|NO_OFFLINE/i,
    exitCode: exitCodes.unavailable,
    explain: ({ output }) =>
      `${registryIn(output)} does not offer the version. Unset \`before\`, \`min-release-age\` and \`offline\` of npm, or choose a complete registry.`,
  },
];

const networkAdvice =
  "Check the network; behind a proxy set HTTPS_PROXY, with a mirror `npm config set registry URL`.";

/** Causes that no retry mends: the tool is stopped as soon as it names one. */
export const hopeless = /ENOSPC|no space left on device|EROFS|read-only file system|\bEACCES\b/i;

/**
 * @param {Context} context
 * @returns {BootstrapFailure} the cause if it is a known one, else the end of the tool's output
 */
export function explainFailure(context) {
  const cause = causes.find(({ pattern }) => pattern.test(context.output));
  if (cause !== undefined) {
    return new BootstrapFailure(
      `cannot ${context.step}: ${cause.explain(context)}`,
      cause.exitCode,
    );
  }
  const tail = withoutPasswords(context.output).trim().split("\n").slice(-12).join("\n  ");
  return new BootstrapFailure(
    `cannot ${context.step}. The tool's last words:\n  ${tail}`,
    exitCodes.unavailable,
  );
}

/** @param {string} output */
function registryIn(output) {
  const url = /https?:\/\/[^\s"'`)]+/.exec(withoutPasswords(output))?.[0];
  try {
    return new URL(url ?? "").origin;
  } catch {
    return "the package registry";
  }
}

/** @param {string} output */
function pathIn(output) {
  return /(?:mkdir|open|rename|unlink|copyfile|symlink|link|scandir) '([^']+)'/.exec(output)?.[1];
}

/** @param {string} text */
function withoutPasswords(text) {
  return text.replace(/(https?:\/\/)[^\s/@]+@/g, "$1");
}
