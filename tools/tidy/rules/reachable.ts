import type { Rule } from "../rule.ts";
import { folderOf, resolvePath, type SourceFile, type Workspace } from "../workspace.ts";

/** Every source file is part of something that runs: no file lies around unused. */
export const reachable: Rule = {
  name: "reachable",
  *check(workspace) {
    const sources = new Map(workspace.sources.map((file) => [file.path, file]));
    const reached = new Set<string>();
    const open = workspace.sources
      .filter((file) => isEntry(workspace, file))
      .map(({ path }) => path);
    for (let path = open.pop(); path !== undefined; path = open.pop()) {
      const file = sources.get(path);
      if (file !== undefined && !reached.has(path)) {
        reached.add(path);
        open.push(...namedBy(file));
      }
    }
    for (const { path, role } of workspace.sources) {
      if (role !== "test" && !reached.has(path)) {
        yield {
          path,
          line: 1,
          message:
            "nothing reaches this file from the package's exports or main.ts; use or delete it",
        };
      }
    }
  },
};

function isEntry({ packages }: Workspace, { path, role, package: owner }: SourceFile): boolean {
  const isMain = /(^|\/)main\.ts$/.test(path) || path === "tools/bootstrap/bootstrap.mjs";
  return (
    owner.entries.includes(path) ||
    (isMain && role !== "test") ||
    // Images start it.
    path.startsWith("deploy/docker/") ||
    // Benchmarks are started by name.
    (path.startsWith("bench/") && path.endsWith(".bench.ts") && packages.size > 0)
  );
}

/** Modules that a file names in a string: imports, and the paths of workers and child processes. */
function namedBy(file: SourceFile): string[] {
  return file.code
    .filter(
      ({ kind, text }) => (kind === "string" || kind === "template") && /\.(ts|mjs)$/.test(text),
    )
    .map(({ text }) => resolvePath(folderOf(file.path), text));
}
