import type { Finding, Rule } from "../rule.ts";
import type { Package, SourceFile, Workspace } from "../workspace.ts";

/** Run as commands of check, or for their types; nothing imports them. */
const commandsOfRoot = ["@biomejs/biome", "@types/node", "typescript"];

/** package.json lists exactly what the package's files import. */
export const dependencies: Rule = {
  name: "dependencies",
  *check(workspace) {
    const root = workspace.packages.get("baton");
    const rootDevelopment = root?.devDependencies ?? {};
    for (const file of workspace.sources) {
      for (const { specifier, line } of file.imports) {
        const message = undeclared(file, packageName(specifier), rootDevelopment);
        if (message !== null) {
          yield { path: file.path, line, message };
        }
      }
    }
    for (const each of workspace.packages.values()) {
      yield* unused(workspace, each);
    }
    yield* unusedOfCatalog(workspace);
  },
};

/** "@a/b" of "@a/b/c"; null for a relative path or a module of Node. */
function packageName(specifier: string): string | null {
  return /^(?:node:|[./#])/.test(specifier)
    ? null
    : (/^(@[^/]+\/[^/]+|[^/]+)/.exec(specifier)?.[0] ?? null);
}

function undeclared(
  { role, package: owner }: SourceFile,
  name: string | null,
  rootDevelopment: Readonly<Record<string, string>>,
): string | null {
  if (name === null || name in owner.dependencies) {
    return null;
  }
  const isShipped = role === "src" || role === "testing";
  if (!isShipped && (name in owner.devDependencies || name in rootDevelopment)) {
    return null;
  }
  const list = isShipped ? "dependencies" : "devDependencies";
  const version = name.startsWith("@baton/") ? "workspace:*" : "catalog:";
  return name === owner.name
    ? null
    : `imports ${name}, which ${owner.folder}/package.json does not declare; add "${name}": "${version}" to ${list}`;
}

function* unused(workspace: Workspace, owner: Package): Generator<Finding> {
  const files = workspace.sources.filter((file) => file.package === owner || owner.folder === "");
  const path = owner.folder === "" ? "package.json" : `${owner.folder}/package.json`;
  const text = workspace.files.get(path) ?? "";
  for (const list of ["dependencies", "devDependencies"] as const) {
    for (const [name, version] of Object.entries(owner[list])) {
      const line = lineOf(text, `"${name}"`);
      const users = files.filter((file) => uses(file, name));
      if (!/^(catalog:|workspace:\*)$/.test(version)) {
        yield {
          path,
          line,
          message: `${name} has a version of its own; put it into the catalog and write "catalog:"`,
        };
      }
      if (owner.folder === "" && commandsOfRoot.includes(name)) {
        continue;
      }
      if (users.length === 0) {
        yield { path, line, message: `${name} is imported nowhere in the package; remove it` };
      } else if (list === "dependencies" && users.every(({ role }) => role === "test")) {
        yield { path, line, message: `only tests import ${name}; move it to devDependencies` };
      }
    }
  }
}

/** Imports it, or names it in a string, as `import.meta.resolve` wants. */
function uses(file: SourceFile, name: string): boolean {
  return file.code.some(
    ({ kind, text }) => kind === "string" && (text === name || text.startsWith(`${name}/`)),
  );
}

function* unusedOfCatalog({ packages, files }: Workspace): Generator<Finding> {
  const path = "pnpm-workspace.yaml";
  const text = files.get(path) ?? "";
  const catalog = /^catalog:\n((?:[ \t]+.*\n?)+)/m.exec(text)?.[1] ?? "";
  for (const [, name = ""] of catalog.matchAll(/^\s+["']?([^"':\s]+)["']?:/gm)) {
    const isUsed = [...packages.values()].some(
      (each) => name in each.dependencies || name in each.devDependencies,
    );
    if (!isUsed) {
      const line = text.split("\n").findIndex((each) => each.includes(`${name}`)) + 1;
      yield { path, line, message: `catalog entry ${name} is used by no package; remove it` };
    }
  }
}

function lineOf(text: string, part: string): number {
  return text.slice(0, Math.max(0, text.indexOf(part))).split("\n").length;
}
