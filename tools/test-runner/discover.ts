import { globSync, statSync } from "node:fs";
import { isAbsolute, relative, resolve } from "node:path";

/** End-to-end tests and those of the tools take longest, so they start first. */
const patterns = [
  "test/**/*.test.ts",
  "tools/**/test/**/*.test.ts",
  "packages/*/test/**/*.test.ts",
  "services/*/test/**/*.test.ts",
  "bench/**/test/**/*.test.ts",
];

/**
 * Test files relative to `root`, in a fixed order.
 * @param wanted a file, a folder, or a part of a path; a test file runs if it fits any. None: all.
 * @returns also what fits no test file
 */
export function findTestFiles(
  root: string,
  wanted: readonly string[],
): { readonly files: string[]; readonly unknown: string[] } {
  const all = patterns.flatMap((pattern) =>
    globSync(pattern, { cwd: root, exclude: (path) => path.includes("node_modules") }).sort(),
  );
  if (wanted.length === 0) {
    return { files: all, unknown: [] };
  }
  const unknown: string[] = [];
  const chosen = new Set<string>();
  for (const each of wanted) {
    const fitting = fittingFiles({ root, all, wanted: each });
    if (fitting.length === 0) {
      unknown.push(each);
    }
    for (const file of fitting) {
      chosen.add(file);
    }
  }
  return { files: [...chosen], unknown };
}

function fittingFiles(options: {
  readonly root: string;
  readonly all: readonly string[];
  readonly wanted: string;
}): string[] {
  const { root, all, wanted } = options;
  const path = resolve(root, wanted);
  if (statSync(path, { throwIfNoEntry: false })?.isFile()) {
    return [isAbsolute(wanted) ? path : relative(root, path)];
  }
  return all.filter((file) => file.includes(wanted.replace(/^\.\//, "")));
}
