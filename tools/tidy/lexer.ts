export type TokenKind =
  | "word"
  | "number"
  | "string"
  | "template"
  | "regex"
  | "punctuation"
  | "comment";

export interface Token {
  readonly kind: TokenKind;
  /** Strings and templates without their quotes; the rest as written. */
  readonly text: string;
  /** From 1. */
  readonly line: number;
  /** Whether white space or a comment lies before it. */
  readonly isSpaced: boolean;
}

/** After these words a slash opens a regular expression; after any other word it divides. */
const operatorWords = new Set(
  "return typeof case in of delete void throw new else do await yield instanceof".split(" "),
);

/** At the reader's position, sticky: each matches one whole token. */
const patterns = {
  space: /\s+/y,
  lineComment: /\/\/[^\n]*|^#![^\n]*/y,
  blockComment: /\/\*[\s\S]*?(?:\*\/|$)/y,
  word: /[#$_\p{ID_Start}][$_\p{ID_Continue}]*/uy,
  number: /\d(?:[eE][+-]|[\w.])*/y,
  string: /"(?:[^"\\\n]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[\s\S])*'?/y,
  regex: /\/(?![*/])(?:[^/\\[\n]|\\[^\n]|\[(?:[^\]\\\n]|\\[^\n])*\])+\/[a-z]*/y,
  templateChunk: /(?:[^`\\$]|\\[\s\S]|\$(?!\{))*/y,
  punctuation: /\?\.(?!\d)|\.\.\.|=>|[\s\S]/y,
};

/**
 * Splits TypeScript or JavaScript into tokens, well enough for rules about names, imports and
 * literals: what stands in a string, a comment or a regular expression is never mistaken for code.
 * O(length). Never throws; text that is not TypeScript gives some tokens or other.
 */
export function tokenize(text: string): Token[] {
  return new Lexer(text).run();
}

class Lexer {
  readonly #text: string;
  readonly #tokens: Token[] = [];
  /** For each open `${`: how many braces were open before it. */
  readonly #templates: number[] = [];
  #position = 0;
  #line = 1;
  #braces = 0;
  #isSpaced = false;
  #last: Token | undefined;
  #beforeLast: Token | undefined;

  constructor(text: string) {
    this.#text = text;
  }

  run(): Token[] {
    while (this.#position < this.#text.length) {
      this.#next();
    }
    return this.#tokens;
  }

  #next(): void {
    const space = this.#take(patterns.space);
    if (space !== null) {
      this.#isSpaced = true;
      this.#line += newlines(space);
      return;
    }
    const comment = this.#take(patterns.lineComment) ?? this.#take(patterns.blockComment);
    if (comment !== null) {
      this.#push("comment", comment);
      this.#isSpaced = true;
      return;
    }
    const word = this.#take(patterns.word);
    if (word !== null) {
      this.#push("word", word);
      return;
    }
    const number = this.#take(patterns.number);
    if (number !== null) {
      this.#push("number", number);
      return;
    }
    const string = this.#take(patterns.string);
    if (string !== null) {
      this.#push("string", string.slice(1, string.endsWith(string[0] ?? "") ? -1 : undefined));
      return;
    }
    const regex = this.#slashOpensRegex() ? this.#take(patterns.regex) : null;
    if (regex !== null) {
      this.#push("regex", regex);
      return;
    }
    this.#punctuation(this.#take(patterns.punctuation) ?? "");
  }

  #punctuation(mark: string): void {
    if (mark === "`") {
      this.#template();
      return;
    }
    if (mark === "}" && this.#templates.at(-1) === this.#braces) {
      this.#templates.pop();
      this.#template();
      return;
    }
    this.#braces += mark === "{" ? 1 : mark === "}" ? -1 : 0;
    this.#push("punctuation", mark);
  }

  /** One literal part of a template, up to its end or to the next `${`. */
  #template(): void {
    this.#push("template", this.#take(patterns.templateChunk) ?? "");
    if (this.#text.startsWith("${", this.#position)) {
      this.#templates.push(this.#braces);
      this.#position += 2;
    } else {
      this.#position += 1;
    }
  }

  #take(pattern: RegExp): string | null {
    pattern.lastIndex = this.#position;
    const found = pattern.exec(this.#text)?.[0] ?? null;
    this.#position += found?.length ?? 0;
    return found === "" && pattern !== patterns.templateChunk ? null : found;
  }

  #push(kind: TokenKind, text: string): void {
    const token: Token = { kind, text, line: this.#line, isSpaced: this.#isSpaced };
    this.#tokens.push(token);
    this.#line += newlines(text);
    this.#isSpaced = false;
    if (kind !== "comment") {
      this.#beforeLast = this.#last;
      this.#last = token;
    }
  }

  #slashOpensRegex(): boolean {
    const last = this.#last;
    if (last === undefined || this.#text[this.#position] !== "/") {
      return last === undefined;
    }
    if (last.kind === "word") {
      return operatorWords.has(last.text) && this.#beforeLast?.text !== ".";
    }
    if (last.kind !== "punctuation") {
      return false;
    }
    const isPostfix = last.text === "!" && !last.isSpaced && endsValue(this.#beforeLast);
    return !isPostfix && !")]}".includes(last.text);
  }
}

function endsValue(token: Token | undefined): boolean {
  return (
    token !== undefined &&
    (token.kind === "word" ? !operatorWords.has(token.text) : ")]".includes(token.text))
  );
}

function newlines(text: string): number {
  let count = 0;
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) {
    count += 1;
  }
  return count;
}
