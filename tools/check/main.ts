import { dirname } from "node:path";
import { onParentGone } from "../parent.ts";
import { checks, checkText, runCheck } from "./checks.ts";

const root = dirname(dirname(import.meta.dirname));
onParentGone(() => process.exit(1));

let failed = 0;
for (const check of checks) {
  const result = await runCheck(root, check);
  failed += result.isOk ? 0 : 1;
  process.stdout.write(checkText(result));
}
console.log(`${checks.length - failed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
