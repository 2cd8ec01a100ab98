import type { Rule } from "../rule.ts";

const vagueNames = ["util", "utils", "helper", "helpers", "common", "misc"];

/** Names of files, casts and exports. */
export const sourceStyle: Rule = {
  name: "source style",
  *check(workspace) {
    for (const { path, role, code } of workspace.sources) {
      const stem = path.split("/").at(-1)?.split(".")[0] ?? "";
      if (vagueNames.includes(stem)) {
        yield { path, line: 1, message: `file named ${stem}; name it after its main noun` };
      } else if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(stem)) {
        yield { path, line: 1, message: `file named ${stem}; file names are kebab-case` };
      }
      for (const [at, { kind, text, line }] of code.entries()) {
        if (kind !== "word") {
          continue;
        }
        const next = code[at + 1]?.text;
        if (
          text === "any" &&
          (code[at - 1]?.text === "as" || (code[at - 1]?.text === "<" && next === ">"))
        ) {
          yield { path, line, message: "cast to any; use unknown and narrow it" };
        }
        if (text === "export" && next === "default" && role !== "test") {
          yield { path, line, message: "default export; export it by its name" };
        }
      }
    }
  },
};
