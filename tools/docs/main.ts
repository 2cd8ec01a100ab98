import { dirname } from "node:path";
import { parseArgs } from "node:util";
import { checkDocs, writeDocs } from "./generate.ts";
import { generatedDocs } from "./sources.ts";

const root = dirname(dirname(import.meta.dirname));
const { values } = parseArgs({ options: { check: { type: "boolean", default: false } } });
if (values.check) {
  const problems = checkDocs(root, generatedDocs);
  for (const problem of problems) {
    console.log(problem);
  }
  process.exitCode = problems.length === 0 ? 0 : 1;
} else {
  const written = writeDocs(root, generatedDocs);
  console.log(
    written.length === 0 ? "all documents are current" : `written: ${written.join(", ")}`,
  );
}
