import { fail, type Outcome, ok } from "@baton/kit";
import type { z } from "zod";
import { readEnvironment, readOverrides } from "./config-environment.ts";
import { type ConfigFileReading, readConfigFile } from "./config-file.ts";
import { issueProblems } from "./config-issue.ts";
import type { ConfigProblem } from "./config-problem.ts";
import { type ConfigTree, configTree, isSection, type SchemaNode } from "./config-tree.ts";
import { ConfigValues, define, isRawObject, type RawObject } from "./config-values.ts";
import { readSecretFile } from "./secret-file.ts";

/** A value that nobody changes, all the way down. */
export type Frozen<T> = T extends (...parameters: never[]) => unknown
  ? T
  : T extends readonly (infer I)[]
    ? readonly Frozen<I>[]
    : T extends object
      ? { readonly [K in keyof T]: Frozen<T[K]> }
      : T;

export interface LoadedConfig<T> {
  readonly value: Frozen<T>;
  /** Doubtful and not wrong: to be logged. */
  readonly warnings: readonly ConfigProblem[];
  readonly tree: ConfigTree;
  /** The raw values, for the origin of each. */
  readonly values: Pick<ConfigValues, "originOf">;
}

export interface ConfigSources<S extends z.ZodType> {
  /** One strict object per service; rules in `configTree`. */
  readonly schema: S;
  /** Path of a YAML file; null for none. */
  readonly file: string | null;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly envPrefix?: string;
  /**
   * By dotted path, as the command line gives them. Text is read as in the environment, other
   * values are taken as they are.
   */
  readonly overrides?: Readonly<Record<string, unknown>>;
}

/**
 * Override before environment before file before default. Every problem of every source is
 * reported, not only the first; cross-field rules of the schema (`superRefine`) are checked once
 * each field is right by itself. A section without a value is an empty one, so sections need no
 * default of their own. The result is frozen.
 */
export function loadConfig<S extends z.ZodType>(
  sources: ConfigSources<S>,
): Outcome<LoadedConfig<z.output<S>>, readonly ConfigProblem[]> {
  const { schema, file, env, envPrefix = "BATON_", overrides = {} } = sources;
  const tree = configTree(schema, envPrefix);
  const values = new ConfigValues(
    file === null ? { kind: "default" } : { kind: "file", file, line: 1, column: 1 },
  );
  const fromFile = file === null ? nothingRead : readConfigFile(file, values);
  fillSections(tree.root, values.root);
  const environment = readEnvironment({ tree, env, envPrefix, values });
  const overridden = readOverrides({ tree, overrides, values });
  const problems = [...fromFile.problems, ...environment.problems, ...overridden];
  const parsed = schema.safeParse(values.root);
  if (!parsed.success && fromFile.isWhole) {
    const refused = new Set(problems.map((problem) => problem.path));
    const more = issueProblems({ issues: parsed.error.issues, tree, values });
    problems.push(...more.filter((problem) => !refused.has(problem.path)));
  }
  const secretFiles = checkSecretFiles(tree, values);
  problems.push(...secretFiles.problems);
  if (problems.length > 0 || !parsed.success) return fail(problems.sort(byPlace));
  const warnings = [...environment.warnings, ...secretFiles.warnings];
  return ok({ value: freeze(parsed.data) as Frozen<z.output<S>>, warnings, tree, values });
}

/** File from top to bottom, then environment, then command line. */
function byPlace({ origin: left }: ConfigProblem, { origin: right }: ConfigProblem): number {
  const order = ["default", "file", "env", "override"];
  if (left.kind !== right.kind) return order.indexOf(left.kind) - order.indexOf(right.kind);
  if (left.kind === "env" && right.kind === "env")
    return Number(left.name > right.name) - Number(left.name < right.name);
  if (left.kind !== "file" || right.kind !== "file") return 0;
  return left.line - right.line || left.column - right.column;
}

const nothingRead: ConfigFileReading = { problems: [], isWhole: true };

/**
 * Gives each section that is absent or empty (`http:` with all its keys commented out) an object
 * to hold its defaults. Optional sections, and those with a default of their own, stay absent.
 */
function fillSections(node: SchemaNode, object: RawObject): void {
  for (const [key, child] of Object.entries(node.properties ?? {})) {
    if (!isSection(child)) continue;
    const isNeeded = node.required?.includes(key) === true || isEmptyObject(child.default);
    if ((object[key] ?? null) === null && isNeeded) define(object, key, {});
    const section = object[key];
    if (isRawObject(section)) fillSections(child, section);
  }
}

function isEmptyObject(value: unknown): boolean {
  return isRawObject(value) && Object.keys(value).length === 0;
}

function checkSecretFiles(
  tree: ConfigTree,
  values: ConfigValues,
): { problems: ConfigProblem[]; warnings: ConfigProblem[] } {
  const problems: ConfigProblem[] = [];
  const warnings: ConfigProblem[] = [];
  for (const leaf of tree.leaves) {
    const path = values.get(leaf.path);
    if (leaf.node.secretFile !== true || typeof path !== "string" || path === "") continue;
    const about = {
      origin: values.nearest(leaf.path, "value"),
      path: leaf.path.join("."),
      allowed: null,
    };
    const read = readSecretFile(path);
    if (!read.ok) {
      problems.push({ ...about, message: read.error.message.replace(/\.$/, ""), hint: null });
    } else if (read.value.isWorldReadable) {
      const message = `every user of this machine can read ${path}`;
      warnings.push({ ...about, message, hint: "Take the right away: chmod o-r." });
    }
  }
  return { problems, warnings };
}

function freeze(value: unknown): unknown {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) freeze(inner);
  }
  return value;
}
