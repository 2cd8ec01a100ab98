import type { Finding, Rule } from "../rule.ts";

interface Ban {
  readonly pattern: RegExp;
  readonly message: string;
}

// Put together from parts, so that this file passes its own rule.
const markers = ["TO" + "DO", "FIX" + "ME", "X" + "XX"];
const homeFolders = ["work", "root", "home", "Users"];
const registryHosts = ["registry.npmjs" + ".org", "pypi" + ".org"];

const bans: readonly Ban[] = [
  {
    pattern: new RegExp(`\\b(${markers.join("|")})\\b`),
    message: "marker of unfinished work; finish it, or describe it in an issue",
  },
  {
    pattern: new RegExp(`(?<![\\w.*}-])/(${homeFolders.join("|")})/`),
    message: "path of one machine; write it relative to the checkout",
  },
  {
    pattern: new RegExp(registryHosts.map((host) => host.replaceAll(".", "\\.")).join("|")),
    message: "host of a registry; leave the choice to the user's package manager settings",
  },
];

/** What must not stand in any text file of the repository, be it code, comment or prose. */
export const hygiene: Rule = {
  name: "hygiene",
  *check({ files }) {
    for (const [path, text] of files) {
      if (text !== null && path !== "pnpm-lock.yaml") {
        yield* bannedLines(path, text);
      }
    }
  },
};

function* bannedLines(path: string, text: string): Generator<Finding> {
  for (const { pattern, message } of bans) {
    // One search of the whole text first: nearly every file is clean.
    if (!pattern.test(text)) {
      continue;
    }
    for (const [index, line] of text.split("\n").entries()) {
      const found = pattern.exec(line)?.[0];
      if (found !== undefined) {
        yield { path, line: index + 1, message: `"${found}": ${message}` };
      }
    }
  }
}
