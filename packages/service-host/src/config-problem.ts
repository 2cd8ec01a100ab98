import { type BatonError, batonError } from "@baton/domain";
import type { ConfigPath } from "./config-tree.ts";
import { maskText } from "./secret-mask.ts";

/** Where a value came from. Line and column count from 1. */
export type ConfigOrigin =
  | { readonly kind: "default" }
  | {
      readonly kind: "file";
      readonly file: string;
      readonly line: number;
      readonly column: number;
    }
  | { readonly kind: "env"; readonly name: string }
  | { readonly kind: "override" };

/** One thing that is wrong, or doubtful, in the configuration. Holds no secret. */
export interface ConfigProblem {
  readonly origin: ConfigOrigin;
  /** `workers[0].url`; empty when the whole file is meant. */
  readonly path: string;
  /** What is wrong, to be read after the path: `is missing`, `70000 is too large`. */
  readonly message: string;
  /** In words; null when there is nothing to say. */
  readonly allowed: string | null;
  /** What to do; null when `message` and `allowed` say it. */
  readonly hint: string | null;
}

/** `baton.yaml:6:9`, `BATON_BUS_URL`, `command line`, `default`. */
export function originText(origin: ConfigOrigin): string {
  switch (origin.kind) {
    case "default":
      return "default";
    case "file":
      return `${origin.file}:${origin.line}:${origin.column}`;
    case "env":
      return origin.name;
    case "override":
      return "command line";
  }
}

/** One line: `baton.yaml:6:9 http.port: 70000 is too large. Allowed: 0 to 65535.` */
export function problemText(problem: ConfigProblem): string {
  const where = problem.origin.kind === "default" ? "" : `${originText(problem.origin)} `;
  const path = problem.path === "" ? "" : `${problem.path}: `;
  const allowed = problem.allowed === null ? "" : ` Allowed: ${problem.allowed}.`;
  const hint = problem.hint === null ? "" : ` ${problem.hint}`;
  return `${where}${path}${problem.message}.${allowed}${hint}`;
}

/** All problems as the one error that ends the start. */
export function configError(problems: readonly ConfigProblem[]): BatonError {
  const count = problems.length === 1 ? "1 problem" : `${problems.length} problems`;
  const lines = problems.map((problem) => `\n  ${problemText(problem)}`);
  return batonError("BATON_CONFIG_INVALID", `${count} in the configuration:${lines.join("")}`);
}

/** `workers[0].url`; keys that are no plain words in quotes: `models["Qwen/Qwen3-0.6B"]`. */
export function pathText(path: ConfigPath): string {
  return path.reduce<string>((text, step) => {
    if (typeof step === "number") return `${text}[${step}]`;
    if (!/^[A-Za-z_][\w-]*$/.test(step)) return `${text}[${JSON.stringify(step)}]`;
    return text === "" ? step : `${text}.${step}`;
  }, "");
}

const shownLengthMax = 80;

/** A value as it may be shown in a problem. */
export function shown(value: unknown, isSecret: boolean): string {
  if (isSecret) return typeof value === "string" ? "the secret given" : `a ${typeof value}`;
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === "object" && value !== null) return "an object";
  const text = typeof value === "string" ? JSON.stringify(maskText(value)) : String(value);
  return text.length > shownLengthMax ? `${text.slice(0, shownLengthMax)}…` : text;
}
