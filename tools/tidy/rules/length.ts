import type { Rule } from "../rule.ts";

const linesMax = 250;
const linesHardMax = 400;

/**
 * Long files only shrink: over 250 lines a file needs an entry with its exact count, and no entry
 * helps over 400.
 */
export function lengthRule(exceptions: Readonly<Record<string, number>>): Rule {
  return {
    name: "length",
    *check(workspace) {
      for (const { path, role, lineCount } of workspace.sources) {
        const problem = role === "test" ? null : lengthProblem(lineCount, exceptions[path]);
        if (problem !== null) {
          yield { path, line: Math.min(lineCount, linesMax), message: problem };
        }
      }
      for (const path of Object.keys(exceptions)) {
        if (!workspace.files.has(path)) {
          yield {
            path: exceptionsPath,
            line: 1,
            message: `${path} does not exist; remove its entry`,
          };
        }
      }
    },
  };
}

const exceptionsPath = "tools/tidy/exceptions.ts";

function lengthProblem(lineCount: number, allowed: number | undefined): string | null {
  if (lineCount > linesHardMax) {
    return `${lineCount} lines, at most ${linesHardMax}; split the file by its nouns`;
  }
  if (lineCount <= linesMax) {
    return allowed === undefined
      ? null
      : `${lineCount} lines need no exception; remove the entry in ${exceptionsPath}`;
  }
  if (allowed === undefined) {
    return `${lineCount} lines, at most ${linesMax}; split the file by its nouns`;
  }
  return allowed === lineCount
    ? null
    : `${lineCount} lines, and ${exceptionsPath} says ${allowed}; ${
        lineCount > allowed ? "split the file" : `write ${lineCount} there`
      }`;
}
