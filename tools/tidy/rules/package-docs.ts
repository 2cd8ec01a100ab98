import type { Rule } from "../rule.ts";

const overview = "ARCHITECTURE.md";

/** A package says its job in its README, and the overview names it. */
export const packageDocs: Rule = {
  name: "package docs",
  *check({ packages, files }) {
    const overviewText = files.get(overview);
    for (const { folder } of packages.values()) {
      if (!/^(packages|services)\//.test(folder)) {
        continue;
      }
      if (!files.has(`${folder}/README.md`)) {
        yield {
          path: `${folder}/README.md`,
          line: 1,
          message: "missing; write the package's job, public calls and who owns which fact",
        };
      }
      const name = folder.split("/")[1] ?? "";
      if (typeof overviewText === "string" && !mentions(overviewText, name)) {
        yield {
          path: overview,
          line: 1,
          message: `does not name ${folder}; add it to the code map`,
        };
      }
    }
  },
};

function mentions(text: string, name: string): boolean {
  return new RegExp(`(?<![\\w-])${name}(?![\\w-])`).test(text);
}
