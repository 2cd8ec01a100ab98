import { invariant } from "@baton/kit";
import { z } from "zod";

/** Keys and list positions from the root of the config. */
export type ConfigPath = readonly (string | number)[];

/** What a schema may say with zod's `.meta()` besides its type and range. */
export interface ConfigMeta {
  readonly description?: string;
  /** Must appear in the key: `ms` in `drainDeadlineMs`. */
  readonly unit?: string;
  /** What is allowed, where the type and range do not say it. */
  readonly allowed?: string;
  readonly secret?: boolean;
  /** The value is the path of a file with a secret. */
  readonly secretFile?: boolean;
}

/** The part of JSON Schema that zod emits for config schemas, and our metadata. */
export interface SchemaNode extends ConfigMeta {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly additionalProperties?: false | SchemaNode;
  readonly required?: readonly string[];
  readonly items?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
  readonly oneOf?: readonly SchemaNode[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly exclusiveMaximum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly format?: string;
  readonly pattern?: string;
}

/** One settable key: all that is not a section, so also lists, maps and unions as a whole. */
export interface ConfigLeaf {
  readonly path: readonly string[];
  readonly node: SchemaNode;
  readonly envName: string;
  /** Neither a default nor optional. */
  readonly required: boolean;
}

export interface ConfigTree {
  readonly root: SchemaNode;
  /** In schema order. */
  readonly leaves: readonly ConfigLeaf[];
}

/**
 * Reads a config schema: a strict object whose members are leaves and, nested, sections (strict
 * objects). It goes by way of JSON Schema, so that nothing depends on zod's inner classes.
 * Throws on a schema that breaks a rule: a section that lets unknown keys pass, two keys with one
 * environment name, a unit that the key does not name.
 */
export function configTree(schema: z.ZodType, envPrefix = "BATON_"): ConfigTree {
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  const root = hoisted(json as SchemaNode);
  invariant(isSection(root), "a config schema is a strict object");
  const leaves: ConfigLeaf[] = [];
  collect(root, [], envPrefix, leaves);
  const names = new Map<string, ConfigLeaf>();
  for (const leaf of leaves) {
    const twin = names.get(leaf.envName);
    const paths = `${leaf.path.join(".")} and ${twin?.path.join(".")}`;
    invariant(twin === undefined, `${paths} share the environment name ${leaf.envName}`);
    names.set(leaf.envName, leaf);
  }
  return { root, leaves };
}

/** A strict object with named members. */
export function isSection(node: SchemaNode): boolean {
  return node.type === "object" && node.properties !== undefined;
}

/** The node at `path`, inside list items, map values and the members of unions too. */
export function nodeAt(node: SchemaNode, path: ConfigPath): SchemaNode | null {
  const [step, ...rest] = path;
  if (step === undefined) return node;
  for (const form of forms(node)) {
    const more = form.additionalProperties;
    const child =
      typeof step === "number"
        ? form.items
        : (form.properties?.[step] ?? (typeof more === "object" ? more : undefined));
    const found = child === undefined ? null : nodeAt(child, rest);
    if (found !== null) return found;
  }
  return null;
}

/** The alternatives of a union, flat; of anything else the node itself. */
export function forms(node: SchemaNode): readonly SchemaNode[] {
  const members = node.anyOf ?? node.oneOf;
  return members === undefined ? [node] : members.flatMap(forms);
}

/** The node says, or one of its alternatives does, that its value is a secret. */
export function isSecret(node: SchemaNode | null): boolean {
  return (
    node !== null && (node.secret === true || forms(node).some((form) => form.secret === true))
  );
}

/** camelCase to words in lower case: `maxKVBlocks` gives max, kv, blocks. */
export function keyWords(key: string): readonly string[] {
  return key
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/([A-Z])([A-Z][a-z])/g, "$1_$2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
}

/** `X or null` says what X says: `.nullable()` and `.default()` leave the metadata on X. */
function hoisted(node: SchemaNode): SchemaNode {
  const result: { -readonly [K in keyof SchemaNode]: SchemaNode[K] } = { ...node };
  if (node.properties !== undefined) {
    const entries = Object.entries(node.properties).map(([key, child]) => [key, hoisted(child)]);
    result.properties = Object.fromEntries(entries);
  }
  if (typeof node.additionalProperties === "object") {
    result.additionalProperties = hoisted(node.additionalProperties);
  }
  if (node.items !== undefined) result.items = hoisted(node.items);
  if (node.oneOf !== undefined) result.oneOf = node.oneOf.map(hoisted);
  if (node.anyOf === undefined) return result;
  result.anyOf = node.anyOf.map(hoisted);
  const [only, ...others] = result.anyOf.filter((form) => form.type !== "null");
  if (only === undefined || others.length > 0) return result;
  const { description, unit, allowed, secret, secretFile } = only;
  const meta = { description, unit, allowed, secret, secretFile };
  return { ...(JSON.parse(JSON.stringify(meta)) as ConfigMeta), ...result };
}

function collect(
  section: SchemaNode,
  path: readonly string[],
  envPrefix: string,
  leaves: ConfigLeaf[],
): void {
  const where = path.join(".") || "the root";
  invariant(section.additionalProperties === false, `${where} is not a z.strictObject`);
  for (const [key, node] of Object.entries(section.properties ?? {})) {
    const inner = [...path, key];
    if (isSection(node)) {
      collect(node, inner, envPrefix, leaves);
      continue;
    }
    checkUnit(inner, node);
    leaves.push({
      path: inner,
      node,
      envName: envPrefix + inner.map((part) => keyWords(part).join("_").toUpperCase()).join("_"),
      required: (section.required ?? []).includes(key),
    });
  }
}

function checkUnit(path: readonly string[], node: SchemaNode): void {
  if (node.unit === undefined) return;
  const words = keyWords(path.at(-1) ?? "");
  const named = node.unit.split(" ").every((word) => words.includes(word));
  invariant(named, `${path.join(".")} does not name its unit, ${node.unit}`);
}
