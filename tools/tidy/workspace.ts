import { type Import, importsOf } from "./imports.ts";
import { type Token, tokenize } from "./lexer.ts";

/** `src` is shipped; `testing` is a package's test doubles; `tool` is code of tools/ and bench/. */
export type Role = "src" | "testing" | "test" | "tool";

export interface SourceFile {
  readonly path: string;
  readonly text: string;
  readonly package: Package;
  readonly role: Role;
  readonly lineCount: number;
  /** Tokens without comments. */
  readonly code: readonly Token[];
  readonly imports: readonly Import[];
}

export interface Package {
  readonly name: string;
  /** Relative to the root, "" for the root itself. */
  readonly folder: string;
  /** NaN when package.json does not say. */
  readonly layer: number;
  readonly isPure: boolean;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  /** Paths, relative to the root, that package.json offers as exports or commands. */
  readonly entries: readonly string[];
  readonly exports: readonly string[];
}

export interface Workspace {
  readonly packages: ReadonlyMap<string, Package>;
  /** TypeScript and JavaScript modules. */
  readonly sources: readonly SourceFile[];
  /** Every file of the tree; null for what is not text or is too large to read. */
  readonly files: ReadonlyMap<string, string | null>;
}

/** @param files path relative to the root, with `/`, to text */
export function workspaceOf(files: ReadonlyMap<string, string | null>): Workspace {
  const packages = new Map<string, Package>();
  for (const [path, text] of files) {
    const folder = /^((?:[^/]+\/){0,2})package\.json$/.exec(path)?.[1];
    if (folder !== undefined && text !== null) {
      packages.set(folder.slice(0, -1), readPackage(folder, text));
    }
  }
  const sources: SourceFile[] = [];
  for (const [path, text] of files) {
    const owner = packageOf(packages, path);
    if (text !== null && owner !== undefined && /\.(ts|mjs)$/.test(path)) {
      sources.push(readSource(path, text, owner));
    }
  }
  const byName = [...packages.values()].map((each) => [each.name, each] as const);
  return { packages: new Map(byName), sources, files };
}

function readPackage(folder: string, text: string): Package {
  const manifest = JSON.parse(text);
  const exports: Record<string, string> = manifest.exports ?? {};
  const bin: Record<string, string> = manifest.bin ?? {};
  const entries = [...Object.values(exports), ...Object.values(bin)];
  return {
    name: manifest.name,
    folder: folder.slice(0, -1),
    layer: manifest.baton?.layer ?? Number.NaN,
    isPure: manifest.baton?.pure === true,
    dependencies: manifest.dependencies ?? {},
    devDependencies: manifest.devDependencies ?? {},
    entries: entries.map((entry) => resolvePath(folder, entry)),
    exports: Object.keys(exports),
  };
}

function packageOf(packages: ReadonlyMap<string, Package>, path: string): Package | undefined {
  const [first = "", second = ""] = path.split("/");
  return packages.get(`${first}/${second}`) ?? packages.get(first) ?? packages.get("");
}

function readSource(path: string, text: string, owner: Package): SourceFile {
  const code = tokenize(text).filter(({ kind }) => kind !== "comment");
  return {
    path,
    text,
    package: owner,
    role: roleOf(path, owner),
    lineCount: text === "" ? 0 : text.replace(/\n$/, "").split("\n").length,
    code,
    imports: importsOf(code),
  };
}

function roleOf(path: string, owner: Package): Role {
  if (/(^|\/)test\//.test(path) || path.endsWith(".test.ts")) {
    return "test";
  }
  if (["tools", "bench", ""].includes(owner.folder)) {
    return "tool";
  }
  return /\/src\/testing[./]/.test(path) ? "testing" : "src";
}

/** Joins and normalises; a result that leaves the root starts with "..". */
export function resolvePath(folder: string, relative: string): string {
  const parts: string[] = [];
  for (const part of `${folder}/${relative}`.split("/")) {
    if (part === ".." && parts.length > 0 && parts.at(-1) !== "..") {
      parts.pop();
    } else if (part !== "" && part !== ".") {
      parts.push(part);
    }
  }
  return parts.join("/");
}

/** "a/b" of "a/b/c.ts". */
export function folderOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}
