import { isMember } from "../imports.ts";
import type { Rule } from "../rule.ts";

const mainLinesMax = 40;

const networkPackages = ["fastify", "undici", "nats", "zeromq"];
const timers = ["setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval"];

/** A service composes and converts: the simulator runs it on virtual ports. */
export const services: Rule = {
  name: "services",
  *check(workspace) {
    for (const { path, role, lineCount, code, imports, package: owner } of workspace.sources) {
      if (!owner.folder.startsWith("services/") || role !== "src") {
        continue;
      }
      if (path.endsWith("/main.ts")) {
        if (lineCount > mainLinesMax) {
          yield {
            path,
            line: mainLinesMax + 1,
            message: `main.ts has ${lineCount} lines, at most ${mainLinesMax}; move the composition to src`,
          };
        }
        continue;
      }
      for (const { specifier, line } of imports) {
        if (networkPackages.includes(specifier)) {
          yield {
            path,
            line,
            message: `service imports ${specifier}; take a port of @baton/ports`,
          };
        }
      }
      for (const [at, { kind, text, line }] of code.entries()) {
        const isCall = code[at + 1]?.text === "(" && !isMember(code, at);
        if (kind === "word" && timers.includes(text) && isCall) {
          yield { path, line, message: `service calls ${text}; use the TimerPort of @baton/ports` };
        }
      }
    }
  },
};
