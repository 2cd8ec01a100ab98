import { readFileSync } from "node:fs";
import {
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type ParsedNode,
  parseDocument,
} from "yaml";
import type { ConfigOrigin, ConfigProblem } from "./config-problem.ts";
import { pathText, shown } from "./config-problem.ts";
import type { ConfigPath } from "./config-tree.ts";
import { type ConfigValues, define, type RawObject } from "./config-values.ts";

/** No config is near this; a wrong path to a weights file stops here. */
const fileBytesMax = 4 * 1024 * 1024;
/** Deeper nesting is a mistake or an attack. */
const depthMax = 32;
/** Values that aliases may add up to. */
const nodesMax = 100_000;

export interface ConfigFileReading {
  readonly problems: readonly ConfigProblem[];
  /** All of the file is in the values; when not, what seems missing may stand in the rest. */
  readonly isWhole: boolean;
}

/**
 * Reads YAML 1.2 (and so JSON) into `values`, each with its line and column. A file that cannot be
 * read, is not UTF-8, or has syntax errors or a key twice gives problems, all of them.
 */
export function readConfigFile(file: string, values: ConfigValues): ConfigFileReading {
  const origin: ConfigOrigin = { kind: "file", file, line: 1, column: 1 };
  const refuse = (message: string, hint: string): ConfigFileReading => ({
    problems: [{ origin, path: "", message, allowed: null, hint }],
    isWhole: false,
  });
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (thrown) {
    const code = (thrown as NodeJS.ErrnoException).code ?? "unknown error";
    return refuse(`the file cannot be read (${code})`, "Check the path and its permissions.");
  }
  if (bytes.length > fileBytesMax) {
    return refuse(`the file has ${bytes.length} bytes`, `A config has at most ${fileBytesMax}.`);
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return refuse("the file is not UTF-8", "Save it as UTF-8.");
  }
  return new YamlReader(file, text, values).read();
}

class YamlReader {
  readonly #file: string;
  readonly #text: string;
  readonly #values: ConfigValues;
  readonly #lines = new LineCounter();
  readonly #document: Document.Parsed<ParsedNode, true>;
  readonly #problems: ConfigProblem[] = [];
  #nodesLeft = nodesMax;

  constructor(file: string, text: string, values: ConfigValues) {
    this.#file = file;
    this.#text = text;
    this.#values = values;
    this.#document = parseDocument(text, { lineCounter: this.#lines, prettyErrors: false });
  }

  read(): ConfigFileReading {
    let isWhole = true;
    for (const error of [...this.#document.errors, ...this.#document.warnings]) {
      const isTwice = error.code === "DUPLICATE_KEY";
      if (!isTwice) isWhole = false;
      const key = /^[^\s:]{1,80}/.exec(this.#text.slice(error.pos[0], error.pos[0] + 80))?.[0];
      const message = isTwice ? `the key ${key} stands here a second time` : error.message;
      this.#report([], this.#origin(error.pos[0]), message.replace(/\.$/, ""));
    }
    const root = this.#document.contents;
    const isEmpty = root === null || (isScalar(root) && root.value === null);
    if (isWhole && !isEmpty && !isMap(root)) {
      isWhole = false;
      this.#report([], this.#at(root, null), "a config file holds keys and values at its top");
    }
    if (isWhole && isMap(root)) {
      for (const [key, value] of Object.entries(this.#read(root, []) as RawObject)) {
        define(this.#values.root, key, value);
      }
    }
    return { problems: this.#problems, isWhole: isWhole && this.#nodesLeft >= 0 };
  }

  #read(given: Node | null, path: ConfigPath): unknown {
    this.#nodesLeft--;
    if (path.length > depthMax || this.#nodesLeft < 0) {
      if (this.#nodesLeft === -1 || path.length > depthMax) {
        this.#report(
          path,
          this.#at(given, null),
          "the file is nested too deeply or expands too far",
        );
      }
      return null;
    }
    const node = isAlias(given) ? (given.resolve(this.#document) ?? null) : given;
    if (isMap(node)) {
      const result: RawObject = {};
      for (const pair of node.items) {
        const key = this.#key(pair.key as Node | null, path);
        if (key === null) continue;
        const inner = [...path, key];
        const keyOrigin = this.#at(pair.key as Node, null);
        const value = pair.value as Node | null;
        this.#values.place(inner, { key: keyOrigin, value: this.#at(value, keyOrigin) });
        define(result, key, this.#read(value, inner));
      }
      return result;
    }
    if (isSeq(node)) {
      return node.items.map((item, index) => {
        const origin = this.#at(item as Node, null);
        this.#values.place([...path, index], { key: origin, value: origin });
        return this.#read(item as Node, [...path, index]);
      });
    }
    return isScalar(node) ? node.value : null;
  }

  /** Numbers and booleans as keys stand for their text. */
  #key(node: Node | null, path: ConfigPath): string | null {
    if (isScalar(node) && node.value !== null) return String(node.source ?? node.value);
    const what = isScalar(node) ? shown(node.value, false) : "a list or an object";
    this.#report(path, this.#at(node, null), `${what} cannot be a key`);
    return null;
  }

  /** An empty value has no width of its own: it stands where its key does. */
  #at(node: Node | null, empty: ConfigOrigin | null): ConfigOrigin {
    const range = node?.range;
    const isEmpty = range === undefined || range === null || range[0] === range[1];
    if (isEmpty && empty !== null) return empty;
    return this.#origin(range?.[0] ?? 0);
  }

  #origin(offset: number): ConfigOrigin {
    const { line, col } = this.#lines.linePos(offset);
    return { kind: "file", file: this.#file, line: Math.max(1, line), column: Math.max(1, col) };
  }

  #report(path: ConfigPath, origin: ConfigOrigin, message: string): void {
    this.#problems.push({ origin, path: pathText(path), message, allowed: null, hint: null });
  }
}
