import { readFileSync } from "node:fs";
import * as protocol from "@baton/protocol";
import { decode } from "@msgpack/msgpack";
import t from "tap";
import { examples } from "./spec-examples.ts";
import {
  blockOf,
  exampleBlocks,
  fieldRows,
  fleetWorkerBytes,
  pathsOf,
  placeBytes,
  type Row,
  sectionsOf,
} from "./spec-page.ts";

const page = readFileSync(new URL("../../../docs/protocol.md", import.meta.url), "utf8");
const sections = sectionsOf(page);

/** Paths of the rows, with shared parts written out. */
function written(rows: readonly Row[]): string[] {
  return rows.flatMap(({ path, part }) => {
    const inner = part === null ? [] : fieldRows(sections.get(part.replaceAll("-", " ")) ?? "");
    return [path, ...written(inner).map((each) => `${path}.${each}`)];
  });
}

t.test("every message of the code has a section, and the page names its version", async (t) => {
  const names = Object.values(protocol).flatMap((each) =>
    typeof each === "object" && "encode" in each ? [each.name] : [],
  );
  t.ok(names.length > 0);
  t.same([...new Set(examples.map(({ name }) => name))].sort(), names.sort());
  for (const name of names) t.ok(sections.has(name), `### ${name}`);
  t.match(page, `# Bus protocol ${protocol.protocolMajor}.${protocol.protocolMinor}\n`);
});

t.test("the field tables list exactly the fields of the code, kind by kind", async (t) => {
  for (const { name, kind, payload } of examples) {
    const { b: body } = decode(payload) as { b: unknown };
    const rows = fieldRows(sections.get(name) ?? "").filter(
      ({ kinds }) => kind === null || kinds.length === 0 || kinds.includes(kind),
    );
    t.same(written(rows).sort(), pathsOf(body).sort(), `${name} ${kind ?? ""}`);
    if (kind !== null) t.match(sections.get(name), `\`${kind}\``);
  }
});

t.test("a kind that the page names is one of the code", async (t) => {
  for (const name of new Set(examples.map((each) => each.name))) {
    const kinds = examples.flatMap((each) => (each.name === name ? [each.kind] : []));
    for (const row of fieldRows(sections.get(name) ?? "")) {
      for (const kind of row.kinds) t.ok(kinds.includes(kind), `${name} ${row.path} ${kind}`);
    }
  }
});

t.test("the example bytes of the page are what the code writes and reads", async (t) => {
  const shown = new Set<string>();
  for (const example of examples) {
    const info = example.kind === null ? example.name : `${example.name} ${example.kind}`;
    const hex = blockOf(page, `hex ${info}`);
    t.same(example.read(example.payload), { ok: true, value: example.value }, info);
    if (hex === undefined) continue;
    shown.add(example.name);
    const blocks = exampleBlocks(example);
    t.equal(blockOf(page, `json ${info}`), blocks.json, `json ${info}`);
    t.equal(hex, blocks.hex, `hex ${info}`);
    const payload = Buffer.from(hex.replaceAll("\n", ""), "hex");
    t.same(example.read(payload), { ok: true, value: example.value }, `bytes of ${info}`);
  }
  t.equal(shown.size, new Set(examples.map(({ name }) => name)).size, "one for each message");
  t.equal(page.match(/^```hex /gm)?.length, shown.size, "no block of an unknown message");
});

t.test("the sizes of the page are measured", async (t) => {
  const sizes = sections.get("sizes") ?? "";
  const rows = [...sizes.matchAll(/^\| +([\d,]+) +\| ([\d, ]+?) +\| +([\d,]+) \|/gm)];
  t.ok(rows.length >= 4);
  for (const [, tokens, blockSizes, bytes] of rows) {
    const measured = placeBytes(
      Number(tokens!.replaceAll(",", "")),
      blockSizes!.split(", ").map(Number),
    );
    t.equal(Number(bytes!.replaceAll(",", "")), measured, `${tokens} in ${blockSizes}`);
  }
  const perWorker = Number(/takes (\d+) bytes a worker/.exec(sizes)?.[1]);
  t.equal(perWorker, Math.round(fleetWorkerBytes()));
});

t.test("prompts up to the length that the page promises fit into NATS's default", async (t) => {
  const natsDefault = 1_048_576;
  t.ok(placeBytes(2_095_000, [16, 32]) <= natsDefault);
  t.ok(placeBytes(2_097_152, [16, 32]) > natsDefault);
  t.ok(placeBytes(100_000_000, [16]) <= natsDefault);
  t.ok(placeBytes(100_000_000, [16, 32, 64]) <= 524_288 * 3 + 4_096);
});
