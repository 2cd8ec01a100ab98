import { Document, isCollection, isMap, isPair, isScalar, isSeq } from "yaml";
import type { LoadedConfig } from "./config-load.ts";
import { originText } from "./config-problem.ts";
import { type ConfigPath, isSecret, nodeAt } from "./config-tree.ts";
import { mask, maskText } from "./secret-mask.ts";

/**
 * The effective configuration as YAML that can be read back, each value with where it came from as
 * a comment. Secrets are masked, and so are passwords inside URLs.
 */
export function printConfig(loaded: LoadedConfig<unknown>): string {
  const document = new Document(masked(loaded, [], loaded.value));
  annotate(loaded, document.contents, []);
  return document.toString({ lineWidth: 0, flowCollectionPadding: false });
}

/** What differs from the defaults, for one log line at start: path, masked value and origin. */
export function changedConfig(
  loaded: LoadedConfig<unknown>,
): Readonly<Record<string, { readonly value: unknown; readonly from: string }>> {
  const changed: Record<string, { value: unknown; from: string }> = {};
  for (const { path } of loaded.tree.leaves) {
    const origin = loaded.values.originOf(path);
    if (origin.kind === "default") continue;
    const value = path.reduce<unknown>(
      (inner, key) => (inner as Record<string, unknown> | undefined)?.[key],
      loaded.value,
    );
    changed[path.join(".")] = { value: masked(loaded, path, value), from: originText(origin) };
  }
  return changed;
}

function masked(loaded: LoadedConfig<unknown>, path: ConfigPath, value: unknown): unknown {
  if (isSecret(nodeAt(loaded.tree.root, path)) && value !== null && value !== undefined)
    return mask;
  if (typeof value === "string") return maskText(value);
  if (Array.isArray(value))
    return value.map((item, index) => masked(loaded, [...path, index], item));
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  return Object.fromEntries(
    entries.map(([key, item]) => [key, masked(loaded, [...path, key], item)]),
  );
}

function annotate(loaded: LoadedConfig<unknown>, node: unknown, path: ConfigPath): void {
  if (isMap(node)) {
    for (const pair of node.items) {
      if (!isPair(pair) || !isScalar(pair.key)) continue;
      const inner = [...path, String(pair.key.value)];
      // A comment after `{}` or `[]` would push them to a line of their own.
      if (isEmpty(pair.value)) pair.key.commentBefore = originComment(loaded, inner);
      else annotate(loaded, pair.value, inner);
    }
  } else if (isSeq(node)) {
    for (const [index, item] of node.items.entries()) annotate(loaded, item, [...path, index]);
  } else if (isScalar(node)) {
    node.comment = originComment(loaded, path);
  }
}

function isEmpty(node: unknown): boolean {
  return isCollection(node) && node.items.length === 0;
}

function originComment(loaded: LoadedConfig<unknown>, path: ConfigPath): string {
  return ` ${originText(loaded.values.originOf(path))}`;
}
