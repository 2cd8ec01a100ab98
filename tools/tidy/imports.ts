import type { Token } from "./lexer.ts";

export interface Import {
  readonly specifier: string;
  readonly line: number;
}

/**
 * All that a module imports or re-exports, statically or with a literal `import()`.
 * @param code tokens without comments
 */
export function importsOf(code: readonly Token[]): Import[] {
  const found: Import[] = [];
  for (const [at, token] of code.entries()) {
    if (token.kind !== "word" || isMember(code, at)) {
      continue;
    }
    const source =
      token.text === "import"
        ? importSource(code, at + 1)
        : token.text === "export"
          ? exportSource(code, at + 1)
          : undefined;
    if (source?.kind === "string") {
      found.push({ specifier: source.text, line: source.line });
    }
  }
  return found;
}

/** Whether the token is `x.TOKEN`: a property of something, not a name of its own. */
export function isMember(code: readonly Token[], at: number): boolean {
  const before = code[at - 1]?.text;
  return before === "." || before === "?.";
}

/** `import "x"`, `import("x")`, `import … from "x"`. */
function importSource(code: readonly Token[], at: number): Token | undefined {
  const next = code[at];
  if (next?.kind === "string") {
    return next;
  }
  if (next?.text === "(") {
    return code[at + 1];
  }
  return next?.text === "." ? undefined : afterFrom(code, at);
}

/** `export * from "x"`, `export * as y from "x"`, `export [type] { … } from "x"`. */
function exportSource(code: readonly Token[], at: number): Token | undefined {
  const start = code[at]?.text === "type" ? at + 1 : at;
  const opens = code[start]?.text;
  return opens === "*" || opens === "{" ? afterFrom(code, start) : undefined;
}

/** The string after `from`, if the clause that starts here has one. */
function afterFrom(code: readonly Token[], at: number): Token | undefined {
  let index = at;
  while (/^[\w$*,]+$/.test(code[index]?.text ?? "") || code[index]?.text === "{") {
    const token = code[index];
    if (token?.text === "{") {
      while (code[index] !== undefined && code[index]?.text !== "}") {
        index += 1;
      }
    } else if (token?.text === "from" && code[index + 1]?.kind === "string") {
      return code[index + 1];
    }
    index += 1;
  }
  return undefined;
}
