import type { Rule } from "../rule.ts";
import type { SourceFile } from "../workspace.ts";

/** The environment is read in one place, and a process ends in one place. */
export const processAccess: Rule = {
  name: "process access",
  *check(workspace) {
    for (const file of workspace.sources) {
      const mayReadEnvironment = readsEnvironment(file);
      const mayExit = endsProcess(file);
      for (const [at, { text, line }] of file.code.entries()) {
        const member =
          [".", "?."].includes(file.code[at + 1]?.text ?? "") && file.code[at + 2]?.text;
        if (text !== "process") {
          continue;
        }
        if (member === "env" && !mayReadEnvironment) {
          yield {
            path: file.path,
            line,
            message: "process.env; take the value from the config, which service-host reads",
          };
        }
        if (member === "exit" && !mayExit) {
          yield {
            path: file.path,
            line,
            message: "process.exit; return, throw, or set process.exitCode in main.ts",
          };
        }
      }
    }
  },
};

function readsEnvironment({ role, package: { folder } }: SourceFile): boolean {
  return role !== "src" || /^packages\/(service-host|cli)$/.test(folder);
}

function endsProcess({ path, role }: SourceFile): boolean {
  return (
    role === "test" ||
    /^(packages\/cli|packages\/service-host|tools\/bootstrap)\/|(^|\/)main\.ts$/.test(path)
  );
}
