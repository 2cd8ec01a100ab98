import { FinalResults, Parser, type Result } from "tap-parser";

export interface Failure {
  /** Names of the subtests and of the assertion, joined by " > ". */
  readonly name: string;
  /** tap's diagnostics, or null. */
  readonly diagnostics: Readonly<Record<string, unknown>> | null;
}

export interface Skip {
  readonly name: string;
  readonly reason: string;
}

export interface TapReport {
  /** Leaf assertions; a subtest that ran to its end without any counts as one. */
  readonly passed: number;
  readonly failures: readonly Failure[];
  readonly skips: readonly Skip[];
  /** Why the stream as a whole is not sound TAP: no plan, a wrong count, a bail-out. */
  readonly problems: readonly string[];
  /** Lines that are not TAP: what the test printed. */
  readonly extra: string;
}

/** Reads one file's TAP as it comes: `write` each chunk, then `end`. */
export class TapReader {
  readonly #parser = new Parser({ name: "" });
  readonly #failures: Failure[] = [];
  readonly #skips: Skip[] = [];
  readonly #problems: string[] = [];
  #passed = 0;
  #extra = "";

  constructor() {
    this.#parser.on("complete", (results) => this.#complete(results));
    this.#parser.on("bailout", (reason) => this.#problems.push(`bail out: ${reason}`));
    this.#parser.on("extra", (text) => {
      this.#extra += text;
    });
    this.#follow(this.#parser, []);
  }

  write(chunk: Buffer): void {
    this.#parser.write(chunk);
  }

  end(): TapReport {
    this.#parser.end();
    return {
      passed: this.#passed,
      failures: this.#failures,
      skips: this.#skips,
      problems: this.#problems,
      extra: this.#extra,
    };
  }

  #follow(parser: Parser, path: readonly string[]): void {
    let seenBeforeChild = 0;
    parser.on("child", (child: Parser) => {
      seenBeforeChild = this.#seen();
      this.#follow(child, [...path, child.name]);
    });
    parser.on("assert", (result: Result) => {
      const isLeaf = !result.closingTestPoint || this.#seen() === seenBeforeChild;
      if (isLeaf) {
        this.#record(result, path);
      }
    });
  }

  #seen(): number {
    return this.#passed + this.#failures.length + this.#skips.length;
  }

  #record(result: Result, path: readonly string[]): void {
    const name = [...path, result.name].join(" > ");
    const skipped = result.skip || result.todo;
    if (skipped !== false) {
      const word = result.todo ? "todo" : "skipped";
      this.#skips.push({ name, reason: skipped === true ? word : skipped });
    } else if (result.ok) {
      this.#passed += 1;
    } else {
      this.#failures.push({ name, diagnostics: result.diag });
    }
  }

  #complete(results: unknown): void {
    if (!(results instanceof FinalResults) || results.ok || this.#failures.length > 0) {
      return;
    }
    for (const failure of results.failures) {
      this.#problems.push(failure.tapError ?? `failed: ${String(failure["name"])}`);
    }
  }
}
