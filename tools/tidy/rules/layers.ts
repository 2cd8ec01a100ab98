import type { Finding, Rule } from "../rule.ts";
import {
  folderOf,
  type Package,
  resolvePath,
  type SourceFile,
  type Workspace,
} from "../workspace.ts";

/** Imports between packages run strictly downward, through what the sibling exports. */
export const layers: Rule = {
  name: "layers",
  *check(workspace) {
    for (const each of workspace.packages.values()) {
      if (each.folder !== "" && Number.isNaN(each.layer)) {
        yield {
          path: `${each.folder}/package.json`,
          line: 1,
          message: 'no layer; add "baton": { "layer": N, "pure": true or false }',
        };
      }
    }
    for (const file of workspace.sources) {
      for (const { specifier, line } of file.imports) {
        const message = specifier.startsWith("@baton/")
          ? siblingProblem(workspace, file, specifier)
          : specifier.startsWith(".")
            ? relativeProblem(file, specifier)
            : null;
        if (message !== null) {
          yield { path: file.path, line, message } satisfies Finding;
        }
      }
    }
  },
};

function siblingProblem(workspace: Workspace, file: SourceFile, specifier: string): string | null {
  const [, name = "", path = ""] = /^(@baton\/[^/]+)(.*)$/.exec(specifier) ?? [];
  const own = file.package;
  const sibling = workspace.packages.get(name);
  if (sibling === undefined) {
    return `${name} is not in this workspace`;
  }
  if (sibling === own && file.role === "test") {
    // A test that goes through the name tests what the others can see.
    return null;
  }
  if (sibling === own) {
    return `a package does not import itself by name; use a relative path to ${specifier}`;
  }
  if (path !== "" && path !== "/testing") {
    return `${specifier} reaches into a sibling; export it from ${sibling.folder}/src/index.ts and import ${name}`;
  }
  if (path === "/testing" && file.role === "src") {
    return `${specifier} is for tests; import ${name}, or move this code to src/testing.ts`;
  }
  if (!sibling.exports.includes(`.${path}`)) {
    return `${name} does not export ".${path}"; add it to ${sibling.folder}/package.json`;
  }
  if (!(sibling.layer < own.layer)) {
    return `${describe(own)} imports ${describe(sibling)}; move what both need to a lower layer, or take it as an argument`;
  }
  return null;
}

function describe(each: Package): string {
  return `${each.name} (layer ${each.layer})`;
}

function relativeProblem(file: SourceFile, specifier: string): string | null {
  const target = resolvePath(folderOf(file.path), specifier);
  const home = file.package.folder;
  if (home !== "" && !target.startsWith(`${home}/`)) {
    return `${specifier} leaves ${home}; import the package by its name`;
  }
  if (!/\.(ts|mjs|json)$/.test(specifier)) {
    return `${specifier} has no extension; write ${specifier}.ts`;
  }
  const isShippedCode = file.role === "src" || file.role === "testing";
  return isShippedCode && target.startsWith(`${home}/test/`)
    ? `${specifier} is a test's file; move it to src`
    : null;
}
