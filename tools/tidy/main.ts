import { dirname } from "node:path";
import { readTree } from "./read-tree.ts";
import { rules, tidy } from "./tidy.ts";
import { workspaceOf } from "./workspace.ts";

const root = dirname(dirname(import.meta.dirname));
const workspace = workspaceOf(readTree(root));
const findings = tidy(workspace);
for (const finding of findings) {
  console.log(finding);
}
console.log(
  `tidy: ${findings.length} findings, ${rules.length} rules, ${workspace.sources.length} sources`,
);
process.exitCode = findings.length === 0 ? 0 : 1;
