import type { z } from "zod";
import { allowedText } from "./config-allowed.ts";
import { type ConfigProblem, pathText, shown } from "./config-problem.ts";
import {
  type ConfigPath,
  type ConfigTree,
  forms,
  isSecret,
  isSection,
  nodeAt,
  type SchemaNode,
} from "./config-tree.ts";
import type { ConfigValues } from "./config-values.ts";
import { didYouMean } from "./did-you-mean.ts";

type Issue = z.core.$ZodIssue;

interface Given {
  readonly tree: ConfigTree;
  readonly values: ConfigValues;
}

/** What zod found, in our words, each at the place that its value came from. */
export function issueProblems(
  given: Given & { readonly issues: readonly Issue[] },
): ConfigProblem[] {
  return given.issues.flatMap((issue) => {
    const path = issue.path.map((step) => (typeof step === "number" ? step : String(step)));
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => unknownKey(given, path, key));
    }
    return [wrongValue(given, path, issue)];
  });
}

function unknownKey(given: Given, section: ConfigPath, key: string): ConfigProblem {
  const path = [...section, key];
  const siblings = Object.keys(nodeAt(given.tree.root, section)?.properties ?? {});
  const near = didYouMean(key, siblings);
  const elsewhere = given.tree.leaves.filter((leaf) => leaf.path.at(-1) === key);
  const meant = near === null ? elsewhere[0]?.path : [...section, near];
  return {
    origin: given.values.nearest(path, "key"),
    path: pathText(path),
    message: "unknown key",
    allowed: meant === undefined && siblings.length > 0 ? siblings.join(", ") : null,
    hint: meant === undefined ? null : `Did you mean ${pathText(meant)}?`,
  };
}

function wrongValue(given: Given, path: ConfigPath, issue: Issue): ConfigProblem {
  const { tree, values } = given;
  const value = values.get(path);
  const node = nodeAt(tree.root, path);
  const isMissing = value === undefined && issue.code !== "custom";
  const dotted = path.join(".");
  const envName = tree.leaves.find((leaf) => leaf.path.join(".") === dotted)?.envName;
  const isWhole = node === null || isSection(node);
  return {
    origin: values.nearest(path, isMissing ? "key" : "value"),
    path: pathText(path),
    message: isMissing
      ? "is missing"
      : whatIsWrong(issue, shown(value, isSecretAt(given, path)), node),
    allowed: isWhole ? null : allowedText(node) || null,
    hint: isMissing && envName !== undefined ? `Set it here or with ${envName}.` : null,
  };
}

/** A secret list or map makes its parts secret. */
function isSecretAt({ tree }: Given, path: ConfigPath): boolean {
  return path.some((_, index) => isSecret(nodeAt(tree.root, path.slice(0, index + 1))));
}

function whatIsWrong(issue: Issue, value: string, node: SchemaNode | null): string {
  switch (issue.code) {
    case "invalid_type":
      return `${value} is not ${expectedText(issue.expected, node)}`;
    case "too_small":
      return `${value} is too ${sizeWord(issue.origin, "small")}`;
    case "too_big":
      return `${value} is too ${sizeWord(issue.origin, "large")}`;
    case "not_multiple_of":
      return `${value} is not a multiple of ${issue.divisor}`;
    case "custom":
      return `${value} ${issue.message}`;
    default:
      return `${value} is not allowed`;
  }
}

function sizeWord(origin: string, word: "small" | "large"): string {
  if (origin === "number" || origin === "int" || origin === "bigint") return word;
  return word === "small" ? "short" : "long";
}

function expectedText(expected: string, node: SchemaNode | null): string {
  // zod checks for a number first and for an integer second.
  if (node !== null && forms(node).some((form) => form.type === "integer")) return "an integer";
  switch (expected) {
    case "int":
      return "an integer";
    case "array":
      return "a list";
    case "object":
    case "record":
      return "a set of keys and values";
    default:
      return `a ${expected}`;
  }
}
