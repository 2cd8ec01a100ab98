import { dirname } from "node:path";
import { performance } from "node:perf_hooks";
import fc from "fast-check";
import t from "tap";
import { importsOf } from "../imports.ts";
import { tokenize } from "../lexer.ts";
import { readTree } from "../read-tree.ts";
import type { Rule } from "../rule.ts";
import { dependencies } from "../rules/dependencies.ts";
import { hygiene } from "../rules/hygiene.ts";
import { layers } from "../rules/layers.ts";
import { lengthRule } from "../rules/length.ts";
import { links } from "../rules/links.ts";
import { packageDocs } from "../rules/package-docs.ts";
import { processAccess } from "../rules/process-access.ts";
import { purity } from "../rules/purity.ts";
import { reachable } from "../rules/reachable.ts";
import { services } from "../rules/services.ts";
import { sourceStyle } from "../rules/source-style.ts";
import { tidy } from "../tidy.ts";
import { workspaceOf } from "../workspace.ts";

type Files = Readonly<Record<string, string>>;

function manifest(name: string, layer: number, more: object = {}): string {
  return JSON.stringify(
    {
      name: `@baton/${name}`,
      baton: { layer, pure: layer < 4 },
      exports: { ".": "./src/index.ts", "./testing": "./src/testing.ts" },
      ...more,
    },
    null,
    2,
  );
}

/** Pure `low` (0) and `core` (2), I/O `net` (4), service `front` (5), tools: without a finding. */
const sound: Files = {
  "package.json":
    '{ "name": "baton", "devDependencies": { "tap": "catalog:", "typescript": "catalog:" } }',
  "pnpm-workspace.yaml":
    "packages:\n  - packages/*\ncatalog:\n  tap: 1\n  typescript: 7\n  undici: 8\n",
  "ARCHITECTURE.md": "# Code map\n\n`low`, `core`, `net`, `front`; see [style](STYLE.md#names).\n",
  "STYLE.md": "# Style\n\n## Names\n",
  "packages/low/README.md": "# low\n",
  "packages/low/package.json": manifest("low", 0),
  "packages/low/src/index.ts": 'export { heap } from "./min-heap.ts";\n',
  "packages/low/src/min-heap.ts": "export const heap = 1;\n",
  "packages/low/src/testing.ts": "export const manual = 1;\n",
  "packages/core/README.md": "# core\n",
  "packages/core/package.json": manifest("core", 2, {
    dependencies: { "@baton/low": "workspace:*" },
  }),
  "packages/core/src/index.ts": 'import { heap } from "@baton/low";\nexport const top = heap;\n',
  "packages/core/src/testing.ts": "export const fake = 1;\n",
  "packages/core/test/core.test.ts":
    'import t from "tap";\nimport { manual } from "@baton/low/testing";\nimport { top } from "@baton/core";\nt.equal(manual, top);\nawait process.env.X;\n',
  "packages/net/README.md": "# net\n",
  "packages/net/package.json": manifest("net", 4, { dependencies: { undici: "catalog:" } }),
  "packages/net/src/index.ts":
    'import { Pool } from "undici";\nexport const start = () => setTimeout(() => new Pool("x"), 1);\nexport const file = new URL("./worker.ts", import.meta.url);\n',
  "packages/net/src/testing.ts": "export {};\n",
  "packages/net/src/worker.ts": "console.log(Date.now());\n",
  "services/front/README.md": "# front\n",
  "services/front/package.json": manifest("front", 5, { exports: {} }),
  "services/front/src/main.ts": 'import { create } from "./create.ts";\ncreate(process.argv);\n',
  "services/front/src/create.ts": "export function create(argv: string[]) {\n  return argv;\n}\n",
  "tools/package.json": manifest("tools", 9, { exports: {} }),
  "tools/check/main.ts": "process.exit(Number(process.env.X));\n",
};

function findings(files: Files, rule: Rule, base: Files = sound): string[] {
  return tidy(workspaceOf(new Map(Object.entries({ ...base, ...files }))), [rule]);
}

const every = [
  layers,
  purity,
  services,
  processAccess,
  lengthRule({}),
  sourceStyle,
  reachable,
  dependencies,
  packageDocs,
  links,
  hygiene,
];

t.test("a sound workspace has no findings", async (t) => {
  for (const rule of every) {
    t.same(findings({}, rule), [], rule.name);
  }
});

interface Violation {
  readonly rule: Rule;
  readonly files: Files;
  /** The whole finding from its start: file, line and what to write instead. */
  readonly found: RegExp;
}

const core = "packages/core/src/index.ts";

/** One violation in `core`: what is added, and how the finding goes on after `path:2: purity: `. */
function impure(code: string, message: RegExp): Violation {
  return {
    rule: purity,
    files: { [core]: `// first line\n${code}\n` },
    found: new RegExp(`^packages/core/src/index\\.ts:2: purity: pure package ${message.source}`),
  };
}

const long = "const a = 1;\n".repeat(251);

const violations: Readonly<Record<string, Violation>> = {
  "an upward import": {
    rule: layers,
    files: { "packages/low/src/min-heap.ts": '\nimport "@baton/core";\n' },
    found:
      /^packages\/low\/src\/min-heap\.ts:2: layers: @baton\/low \(layer 0\) imports @baton\/core \(layer 2\); move what both need to a lower layer/,
  },
  "an import within a layer": {
    rule: layers,
    files: { "packages/low/package.json": manifest("low", 2) },
    found: /core\/src\/index\.ts:1: layers: .*\(layer 2\) imports @baton\/low \(layer 2\); move/,
  },
  "a re-export upward": {
    rule: layers,
    files: { "packages/low/src/min-heap.ts": 'export type { X } from "@baton/net";\n' },
    found: /min-heap\.ts:1: layers: .* imports @baton\/net/,
  },
  "an import behind the index": {
    rule: layers,
    files: { [core]: 'export * from "@baton/low/src/min-heap.ts";\n' },
    found:
      /index\.ts:1: layers: .* reaches into a sibling; export it from packages\/low\/src\/index\.ts and import @baton\/low$/,
  },
  "test doubles in shipped code": {
    rule: layers,
    files: { [core]: 'await import("@baton/low/testing");\n' },
    found: /index\.ts:1: layers: @baton\/low\/testing is for tests; import @baton\/low/,
  },
  "a package that is not there": {
    rule: layers,
    files: { [core]: 'import "@baton/nowhere";\n' },
    found: /index\.ts:1: layers: @baton\/nowhere is not in this workspace/,
  },
  "an own name in shipped code": {
    rule: layers,
    files: { [core]: 'import "@baton/core";\n' },
    found: /index\.ts:1: layers: .* use a relative path/,
  },
  "a path out of the package": {
    rule: layers,
    files: { [core]: 'import "../../low/src/index.ts";\n' },
    found: /index\.ts:1: layers: .* leaves packages\/core; import the package by its name/,
  },
  "a path without extension": {
    rule: layers,
    files: { [core]: 'import "./x";\n' },
    found: /index\.ts:1: layers: .* write \.\/x\.ts/,
  },
  "a package without a layer": {
    rule: layers,
    files: { "packages/low/package.json": '{ "name": "@baton/low" }' },
    found: /^packages\/low\/package\.json:1: layers: no layer; add "baton"/,
  },
  "a node module in a pure package": impure(
    'import { readFileSync } from "node:fs";',
    /imports node:fs; move the input and output/,
  ),
  "a logger in a pure package": impure('import pino from "pino";', /imports pino; put the fact/),
  "await in a pure package": impure("await x;", /uses await; return what is to be done as data/),
  "async in a pure package": impure("async () => 1;", /uses async; return what/),
  "a timer in a pure package": impure("setTimeout(f, 1);", /uses setTimeout; return a deadline/),
  "the clock in a pure package": impure("const a = Date.now();", /uses Date; take nowMs/),
  "a date in a pure package": impure("const a = x ? Date : 0;", /uses Date; take nowMs/),
  "performance in a pure package": impure("performance.now();", /uses performance; take nowMs/),
  "chance in a pure package": impure("Math.random();", /uses Math\.random; take a Prng/),
  "the process in a pure package": impure(
    "const { pid } = process;",
    /uses process; take the value/,
  ),
  "the console in a pure package": impure("console.log(1);", /uses console; put the fact/),
  "Buffer in a pure package": impure("Buffer.from([]);", /uses Buffer; use Uint8Array/),
  "fetch in a pure package": impure("`$" + "{fetch(url)}`;", /uses fetch; return the request/),
  "the environment outside service-host": {
    rule: processAccess,
    files: { "packages/net/src/worker.ts": "\n\nconst a = process.env.X;\n" },
    found:
      /^packages\/net\/src\/worker\.ts:3: process access: process\.env; take the value from the config/,
  },
  "an exit in the middle": {
    rule: processAccess,
    files: { "packages/net/src/worker.ts": "process\n  .exit(1);\n" },
    found: /worker\.ts:1: process access: process\.exit; return, throw, or set process\.exitCode/,
  },
  "a long main.ts": {
    rule: services,
    files: { "services/front/src/main.ts": "a();\n".repeat(41) },
    found: /^services\/front\/src\/main\.ts:41: services: main\.ts has 41 lines, at most 40; move/,
  },
  "sockets in a service": {
    rule: services,
    files: { "services/front/src/create.ts": '\nimport "undici";\n' },
    found: /create\.ts:2: services: service imports undici; take a port/,
  },
  "a global timer in a service": {
    rule: services,
    files: { "services/front/src/create.ts": "setInterval(f, 1);\n" },
    found: /create\.ts:1: services: service calls setInterval; use the TimerPort/,
  },
  "a file over 250 lines": {
    rule: lengthRule({}),
    files: { [core]: long },
    found: /index\.ts:250: length: 251 lines, at most 250; split/,
  },
  "an excepted file that grew": {
    rule: lengthRule({ [core]: 250 }),
    files: { [core]: long },
    found: /index\.ts:250: length: 251 lines, and tools\/tidy\/exceptions\.ts says 250; split/,
  },
  "an excepted file that shrank": {
    rule: lengthRule({ [core]: 300 }),
    files: { [core]: long },
    found: /length: 251 lines, and .* says 300; write 251 there/,
  },
  "an exception that is not needed": {
    rule: lengthRule({ [core]: 300 }),
    files: {},
    found: /index\.ts:2: length: 2 lines need no exception; remove the entry/,
  },
  "an exception for no file": {
    rule: lengthRule({ "packages/core/src/gone.ts": 300 }),
    files: {},
    found: /^tools\/tidy\/exceptions\.ts:1: length: packages\/core\/src\/gone\.ts does not exist/,
  },
  "a file over 400 lines, excepted or not": {
    rule: lengthRule({ [core]: 401 }),
    files: { [core]: "a();\n".repeat(401) },
    found: /length: 401 lines, at most 400; split/,
  },
  "a file named utils": {
    rule: sourceStyle,
    files: { "packages/core/src/utils.ts": "" },
    found: /^packages\/core\/src\/utils\.ts:1: source style: file named utils; name it after/,
  },
  "a file in camel case": {
    rule: sourceStyle,
    files: { "packages/core/src/minHeap.ts": "" },
    found: /minHeap\.ts:1: source style: .* kebab-case/,
  },
  "a cast to any": {
    rule: sourceStyle,
    files: { [core]: "\nexport const a = b as any;\n" },
    found: /index\.ts:2: source style: cast to any; use unknown/,
  },
  "a default export": {
    rule: sourceStyle,
    files: { [core]: "export default 1;\n" },
    found: /index\.ts:1: source style: default export; export it by its name/,
  },
  "a file that nothing imports": {
    rule: reachable,
    files: { "packages/core/src/old.ts": "export const a = 1;\n" },
    found:
      /^packages\/core\/src\/old\.ts:1: reachable: nothing reaches this file.*; use or delete it/,
  },
  "a file that only its test imports": {
    rule: reachable,
    files: {
      "packages/core/src/old.ts": "export const a = 1;\n",
      "packages/core/test/old.test.ts": 'import "../src/old.ts";\n',
    },
    found: /^packages\/core\/src\/old\.ts:1: reachable/,
  },
  "a dependency that is not declared": {
    rule: dependencies,
    files: { [core]: 'import "@baton/low";\nimport "zod/mini";\n' },
    found:
      /index\.ts:2: dependencies: imports zod, which packages\/core\/package\.json does not declare; add "zod": "catalog:" to dependencies/,
  },
  "a development dependency in shipped code": {
    rule: dependencies,
    files: { [core]: 'import "@baton/low";\nimport "tap";\n' },
    found: /index\.ts:2: dependencies: imports tap/,
  },
  "a dependency that nothing imports": {
    rule: dependencies,
    files: { [core]: "export {};\n", "packages/core/test/core.test.ts": 'import "tap";\n' },
    found:
      /^packages\/core\/package\.json:\d+: dependencies: @baton\/low is imported nowhere in the package; remove it/,
  },
  "a dependency of tests alone": {
    rule: dependencies,
    files: { [core]: "export {};\n" },
    found: /core\/package\.json:\d+: dependencies: only tests import @baton\/low; move it/,
  },
  "a version outside the catalog": {
    rule: dependencies,
    files: { "packages/net/package.json": manifest("net", 4, { dependencies: { undici: "^8" } }) },
    found:
      /net\/package\.json:\d+: dependencies: undici has a version of its own; put it into the catalog/,
  },
  "a catalog entry without a user": {
    rule: dependencies,
    files: {
      "pnpm-workspace.yaml": "catalog:\n  tap: 1\n  typescript: 7\n  undici: 8\n  zod: 4\n",
    },
    found: /^pnpm-workspace\.yaml:5: dependencies: catalog entry zod is used by no package/,
  },
  "a package without README": {
    rule: packageDocs,
    files: {
      "packages/new/package.json": manifest("new", 1),
      "ARCHITECTURE.md": "new low core net front",
    },
    found: /^packages\/new\/README\.md:1: package docs: missing; write/,
  },
  "a package that the overview leaves out": {
    rule: packageDocs,
    files: { "ARCHITECTURE.md": "low core-net netting front" },
    found: /^ARCHITECTURE\.md:1: package docs: does not name packages\/core; add it/,
  },
  "a dead link": {
    rule: links,
    files: { "docs/a.md": "\n[b](../gone.md)\n" },
    found: /^docs\/a\.md:2: links: link to \.\.\/gone\.md, which does not exist/,
  },
  "a link to a heading that is not there": {
    rule: links,
    files: { "docs/a.md": "[b](../STYLE.md#files)\n" },
    found: /docs\/a\.md:1: links: .* STYLE\.md has no heading #files/,
  },
  "a mark of unfinished work": {
    rule: hygiene,
    files: { "docs/a.md": `one\n${"TO" + "DO"}: two\n` },
    found: /^docs\/a\.md:2: hygiene: "\w+": marker of unfinished work; finish it/,
  },
  "a path of one machine": {
    rule: hygiene,
    files: { "deploy/run.sh": `cd ${["", "home", "me"].join("/")}\n` },
    found: /^deploy\/run\.sh:1: hygiene: .* write it relative to the checkout/,
  },
  "a registry's host": {
    rule: hygiene,
    files: { "README.md": `see https://${"pypi" + ".org"}/x\n` },
    found: /README\.md:1: hygiene: .*host of a registry/,
  },
};

t.test("each violation is found, with file, line and what to write instead", async (t) => {
  for (const [name, { rule, files, found }] of Object.entries(violations)) {
    t.match(
      findings(files, rule).find((finding) => found.test(finding)),
      found,
      `${name}: ${findings(files, rule).join("\n")}`,
    );
  }
  const tested = new Set(Object.values(violations).map(({ rule }) => rule.name));
  t.same(
    every.map(({ name }) => name).filter((name) => !tested.has(name)),
    [],
    "every rule has a violation here",
  );
});

t.test("what only looks like a violation is none", async (t) => {
  const innocent: Files = {
    [core]: `
      // await Date.now(); as any; export default
      /* import "@baton/net"; */
      export const text = "await Date.now() as any";
      export const quote = \`process.env \${text} Date.now()\`;
      export const pattern = /await "Date\\/[/"]/g;
      export interface Port { readonly process: string; fetch?: number; setTimeout(a: number): void }
      export const record = { console: 1, Buffer: 2 };
      export const nested = record.console / 2 / record.Buffer;
      import { heap } from "@baton/low";
      export const all = [heap, other.await, other?.performance, Math.max(1)];
    `,
    "docs/a.md":
      "`[x](gone.md)` [y](https://example.com/z)\n```\n[z](gone.md)\n```\n## A b, c!\n[s](#a-b-c)\n",
    "packages/core/src/testing.ts": "export const now = async () => Date.now();\n",
    "packages/net/src/index.ts":
      'import "undici";\nexport * from "./worker.ts";\nconst a = "packages/work/x ../home/y";\n',
  };
  for (const rule of every) {
    t.same(findings(innocent, rule), [], rule.name);
  }
});

t.test("tokens and imports are read exactly", async (t) => {
  const texts = (code: string) => tokenize(code).map(({ kind, text }) => `${kind}:${text}`);
  t.same(texts("a! / b / c"), [
    "word:a",
    "punctuation:!",
    "punctuation:/",
    "word:b",
    "punctuation:/",
    "word:c",
  ]);
  t.same(texts('x = /[/"]\\//g.test(y)').slice(2, 3), ['regex:/[/"]\\//g']);
  t.same(texts("return /a/"), ["word:return", "regex:/a/"]);
  t.same(texts("`a#{`b#{c}`}d#{{}}`".replaceAll("#", "$")), [
    "template:a",
    "template:b",
    "word:c",
    "template:",
    "template:d",
    "punctuation:{",
    "punctuation:}",
    "template:",
  ]);
  t.same(texts(String.raw`'it\'s' // "x"`), [String.raw`string:it\'s`, 'comment:// "x"']);
  t.same(
    tokenize(`a\n\`b\n\${c}\n\`\n/* d\n*/ e`).map(({ line }) => line),
    [1, 2, 3, 3, 5, 6],
  );

  const code = `
    import a, { type b } from "one";
    import type * as c from "two";
    import "three";
    export * from "four";
    export type { d } from "five";
    export const from = "not this";
    const e = await import("six");
    type F = import("seven").F;
    console.log(import.meta.url, "nor this", g.import("nor that"));
    import {
      h,
    } from "eight";
  `;
  t.same(
    importsOf(tokenize(code)).map(({ specifier }) => specifier),
    ["one", "two", "three", "four", "five", "six", "seven", "eight"],
  );
});

t.test("whatever the text, the lines of its tokens only grow and stay inside it", async (t) => {
  const piece = fc.constantFrom(
    ...'a 1 \n " \' ` $ { } ( ) / * // /* */ \\ ! = => ?. async import from "x"'.split(" "),
    "\n",
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
      const text = pieces.join("");
      const tokens = tokenize(text);
      const lineCount = text.split("\n").length;
      const lines = tokens.map(({ line }) => line);
      return (
        lines.every((line, at) => line >= (lines[at - 1] ?? 1) && line <= lineCount) &&
        tokens.every((token) => text.includes(token.text))
      );
    }),
  );
  t.pass("for random texts");
});

t.test("this repository is read whole", async (t) => {
  const root = dirname(dirname(dirname(import.meta.dirname)));
  const before = performance.now();
  const workspace = workspaceOf(readTree(root));
  tidy(workspace);
  t.comment(`${workspace.sources.length} sources in ${Math.round(performance.now() - before)} ms`);
  t.ok(workspace.packages.has("@baton/kit"));
  t.ok(workspace.sources.some(({ path }) => path === "tools/tidy/main.ts"));
});
