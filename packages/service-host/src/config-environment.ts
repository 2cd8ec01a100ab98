import { allowedText } from "./config-allowed.ts";
import type { ConfigOrigin, ConfigProblem } from "./config-problem.ts";
import { valueOfText } from "./config-text.ts";
import type { ConfigLeaf, ConfigTree } from "./config-tree.ts";
import { forms, isSecret, isSection, nodeAt } from "./config-tree.ts";
import { type ConfigValues, isRawObject } from "./config-values.ts";
import { didYouMean } from "./did-you-mean.ts";

/** Lays the variables that name a leaf over `values`. Others with the prefix give warnings. */
export function readEnvironment(given: {
  readonly tree: ConfigTree;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly envPrefix: string;
  readonly values: ConfigValues;
}): { problems: ConfigProblem[]; warnings: ConfigProblem[] } {
  const { tree, env, envPrefix, values } = given;
  const leaves = new Map(tree.leaves.map((leaf) => [leaf.envName, leaf]));
  const problems: ConfigProblem[] = [];
  const warnings: ConfigProblem[] = [];
  for (const name of Object.keys(env).sort()) {
    const text = env[name];
    if (!name.startsWith(envPrefix) || text === undefined) continue;
    const leaf = leaves.get(name);
    const origin: ConfigOrigin = { kind: "env", name };
    if (leaf === undefined) {
      if (name !== `${envPrefix}CONFIG` && !isServiceLink(name, text)) {
        warnings.push(unknownVariable(origin, didYouMean(name, leaves.keys())));
      }
    } else if (isServiceLinkValue(text) && !takesText(leaf)) {
      problems.push(serviceLinkProblem(leaf, origin));
    } else problems.push(...setText(leaf, text, origin, values));
  }
  return { problems, warnings };
}

/** Lays values by dotted path over `values`; a section may be given as an object. */
export function readOverrides(given: {
  readonly tree: ConfigTree;
  readonly overrides: Readonly<Record<string, unknown>>;
  readonly values: ConfigValues;
}): ConfigProblem[] {
  const { tree, overrides, values } = given;
  const origin: ConfigOrigin = { kind: "override" };
  const leaves = new Map(tree.leaves.map((leaf) => [leaf.path.join("."), leaf]));
  return Object.entries(overrides).flatMap(([path, value]): ConfigProblem[] => {
    const leaf = leaves.get(path);
    if (leaf !== undefined) {
      if (typeof value === "string") return setText(leaf, value, origin, values);
      if (value !== undefined) values.set(leaf.path, value, origin);
      return [];
    }
    const section = nodeAt(tree.root, path.split("."));
    if (section !== null && isSection(section) && isRawObject(value)) {
      const inner = Object.entries(value).map(([key, item]) => [`${path}.${key}`, item]);
      return readOverrides({ tree, overrides: Object.fromEntries(inner), values });
    }
    const near = didYouMean(path, leaves.keys());
    const hint = near === null ? null : `Did you mean ${near}?`;
    return [{ origin, path, message: "is no key of this config", allowed: null, hint }];
  });
}

function takesText(leaf: ConfigLeaf): boolean {
  return forms(leaf.node).some(({ type }) => type !== "integer" && type !== "number");
}

function setText(
  leaf: ConfigLeaf,
  text: string,
  origin: ConfigOrigin,
  values: ConfigValues,
): ConfigProblem[] {
  const value = valueOfText(leaf.node, text);
  if (value.ok) {
    values.set(leaf.path, value.value, origin);
    return [];
  }
  const allowed = isSecret(leaf.node) ? null : allowedText(leaf.node) || null;
  return [{ origin, path: leaf.path.join("."), message: value.error, allowed, hint: null }];
}

function unknownVariable(origin: ConfigOrigin, near: string | null): ConfigProblem {
  const hint = near === null ? null : `Did you mean ${near}?`;
  return { origin, path: "", message: "no key has this name; ignored", allowed: null, hint };
}

/**
 * Kubernetes gives each pod the variables NAME_PORT, NAME_SERVICE_HOST and more for every Service
 * of its namespace, so a Service called baton-frontend writes BATON_FRONTEND_PORT=tcp://…
 */
function isServiceLink(name: string, text: string): boolean {
  return (
    /_(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)$/.test(name) ||
    isServiceLinkValue(text)
  );
}

function isServiceLinkValue(text: string): boolean {
  return /^(tcp|udp|sctp):\/\/[\d.:[\]a-f]+$/.test(text);
}

function serviceLinkProblem(leaf: ConfigLeaf, origin: ConfigOrigin): ConfigProblem {
  return {
    origin,
    path: leaf.path.join("."),
    message: "holds what Kubernetes writes for a Service of this name",
    allowed: allowedText(leaf.node) || null,
    hint: "Set enableServiceLinks: false in the pod, or rename the Service.",
  };
}
