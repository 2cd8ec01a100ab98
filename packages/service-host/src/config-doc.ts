import { invariant } from "@baton/kit";
import { z } from "zod";
import { allowedText, typeText } from "./config-allowed.ts";
import { type ConfigLeaf, configTree, forms, type SchemaNode } from "./config-tree.ts";
import { markdownTable } from "./markdown-table.ts";

interface Row {
  readonly path: string;
  readonly node: SchemaNode;
  readonly required: boolean;
  readonly envName: string | null;
}

/**
 * Markdown for docs/config.md: the keys of the root, then one table per
 * section, in schema order, so that the same schema
 * always gives the same text. Keys inside lists and maps are listed as `workers[].url`. Throws when
 * a key has no description: an undocumented key cannot be released.
 */
export function renderConfigDoc(name: string, schema: z.ZodType, envPrefix = "BATON_"): string {
  const tree = configTree(schema, envPrefix);
  const sections = new Map<string, ConfigLeaf[]>([["", []]]);
  for (const leaf of tree.leaves) {
    const section = leaf.path.slice(0, -1).join(".");
    sections.set(section, [...(sections.get(section) ?? []), leaf]);
  }
  const parts = [`## ${name}\n`];
  for (const [section, leaves] of sections) {
    if (leaves.length === 0) continue;
    if (section !== "") parts.push(`### ${name}: \`${section}\`\n`);
    parts.push(sectionTable(leaves.flatMap(leafRows)));
  }
  return parts.join("\n");
}

/** JSON schema (draft 2020-12) of a config file, for editors. Sections that may be left out are. */
export function configJsonSchema(schema: z.ZodType): Record<string, unknown> {
  const json = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
    override: ({ jsonSchema }) => {
      const node = jsonSchema as Record<string, unknown>;
      if (node.unit !== undefined) node.description = `${node.description ?? ""} [${node.unit}]`;
      if (node.secret === true) node.writeOnly = true;
      for (const ours of ["unit", "secret", "secretFile", "allowed"]) delete node[ours];
    },
  });
  relaxSections(json as MutableSchema);
  return json as Record<string, unknown>;
}

interface MutableSchema {
  type?: string;
  properties?: Record<string, MutableSchema>;
  required?: string[];
}

/** loadConfig fills in absent sections, so a section is required only when a key in it is. */
function relaxSections(node: MutableSchema): void {
  for (const child of Object.values(node.properties ?? {})) relaxSections(child);
  if (node.required === undefined) return;
  node.required = node.required.filter((key) => {
    const child = node.properties?.[key];
    return (
      child === undefined ||
      child.type !== "object" ||
      child.properties === undefined ||
      (child.required ?? []).length > 0
    );
  });
  if (node.required.length === 0) delete node.required;
}

function sectionTable(rows: readonly Row[]): string {
  for (const row of rows) {
    invariant(row.node.description, `the config key ${row.path} has no description`);
  }
  return markdownTable(
    ["Key", "Type", "Unit", "Default", "Allowed", "Environment", "Description"],
    rows.map(({ path, node, required, envName }) => [
      `\`${path}\``,
      typeText(node),
      node.unit ?? "",
      defaultText(node, required),
      allowedText(node),
      envName === null ? "" : `\`${envName}\``,
      node.description + (node.secret === true ? " Secret: never printed." : ""),
    ]),
  );
}

function leafRows(leaf: ConfigLeaf): Row[] {
  const { node, required, envName } = leaf;
  const path = leaf.path.join(".");
  return [{ path, node, required, envName }, ...innerRows(path, node)];
}

/** Keys of objects in lists, maps and unions; they are set with the whole list or map. */
function innerRows(path: string, node: SchemaNode): Row[] {
  const rows: Row[] = [];
  for (const form of forms(node)) {
    const more = form.additionalProperties;
    if (form.items !== undefined) rows.push(...innerRows(`${path}[]`, form.items));
    if (typeof more === "object") rows.push(...innerRows(`${path}.*`, more));
    for (const [key, child] of Object.entries(form.properties ?? {})) {
      const inner = `${path}.${key}`;
      const required = form.required?.includes(key) === true;
      rows.push({ path: inner, node: child, required, envName: null }, ...innerRows(inner, child));
    }
  }
  return rows;
}

function defaultText(node: SchemaNode, required: boolean): string {
  if (node.default !== undefined) return `\`${JSON.stringify(node.default)}\``;
  return required ? "**required**" : "unset";
}
