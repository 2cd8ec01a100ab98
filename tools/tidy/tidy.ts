import { lengthExceptions } from "./exceptions.ts";
import type { Finding, Rule } from "./rule.ts";
import { dependencies } from "./rules/dependencies.ts";
import { hygiene } from "./rules/hygiene.ts";
import { layers } from "./rules/layers.ts";
import { lengthRule } from "./rules/length.ts";
import { links } from "./rules/links.ts";
import { packageDocs } from "./rules/package-docs.ts";
import { processAccess } from "./rules/process-access.ts";
import { purity } from "./rules/purity.ts";
import { reachable } from "./rules/reachable.ts";
import { services } from "./rules/services.ts";
import { sourceStyle } from "./rules/source-style.ts";
import type { Workspace } from "./workspace.ts";

export const rules: readonly Rule[] = [
  layers,
  purity,
  services,
  processAccess,
  lengthRule(lengthExceptions),
  sourceStyle,
  reachable,
  dependencies,
  packageDocs,
  links,
  hygiene,
];

/** Findings as `path:line: rule: message`, in order of path and line. */
export function tidy(workspace: Workspace, chosen: readonly Rule[] = rules): string[] {
  return chosen
    .flatMap((rule) => [...rule.check(workspace)].map((finding) => ({ rule, finding })))
    .sort((a, b) => compare(a.finding, b.finding))
    .map(
      ({ rule, finding: { path, line, message } }) => `${path}:${line}: ${rule.name}: ${message}`,
    );
}

function compare(a: Finding, b: Finding): number {
  return a.path === b.path ? a.line - b.line : a.path < b.path ? -1 : 1;
}
