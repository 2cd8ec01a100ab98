import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import t from "tap";
import {
  blockUsage,
  generateTrace,
  percentile,
  percentilesOf,
  readTrace,
  synthesizeTokens,
  type TraceRow,
  traceBlockTokens,
  vocabularyDefault,
} from "../src/index.ts";
import { jsonErrorColumn } from "../src/json-error-column.ts";
import { SseScanner } from "../src/sse-scanner.ts";

const synthesis = { seed: 1, vocabulary: vocabularyDefault };

function makeRow(hashIds: readonly number[], inputTokens: number, more: Partial<TraceRow> = {}) {
  const rest = { line: 1, timestampMs: 0, outputTokens: 1, sessionId: null, delayMs: null };
  return { ...rest, hashIds, inputTokens, ...more };
}

const goodLine = '{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [0, 7]}';

t.test("a trace is read under the names of Mooncake and of its relatives", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "baton-trace-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "trace.jsonl");
  const turn = { created_time: 9, input_tokens: 1, output_tokens: 2, hash_ids: [4] };
  const later = { ...turn, session_id: "s", delay: 250 };
  const last = { ...turn, session_id: 7, delay_ms: 1, hash_ids: [4294967295] };
  const lines = [goodLine, "", ...[turn, later, last].map((row) => JSON.stringify(row))];
  // Larger than a read buffer, so that lines are cut.
  for (let index = 0; index < 2_000; index++) lines.push(JSON.stringify(turn));
  writeFileSync(path, lines.join("\r\n"));
  const all = await readTrace({ path }, { limit: null });
  t.equal(all.ok && all.value.length, 2_004);
  const four = await readTrace({ path }, { limit: 4 });
  t.same(four.ok && four.value, [
    makeRow([0, 7], 600, { line: 1, timestampMs: 5, outputTokens: 3 }),
    makeRow([4], 1, { line: 3, timestampMs: 9, outputTokens: 2 }),
    makeRow([4], 1, { line: 4, timestampMs: 9, outputTokens: 2, sessionId: "s", delayMs: 250 }),
    makeRow([4294967295], 1, {
      line: 5,
      timestampMs: 9,
      outputTokens: 2,
      sessionId: "7",
      delayMs: 1,
    }),
  ]);
  const missing = await readTrace({ path: join(folder, "none") }, { limit: null });
  t.match(missing, { ok: false, error: { code: "BATON_TRACE_INVALID", message: /ENOENT.*none/ } });
});

const brokenLines = [
  ["{", "5:2: the line ends within its JSON"],
  ['{"timestamp": 5, "input_length": 6x0}', "5:35: this is not JSON"],
  ["[1]", "5:1: a row is a JSON object"],
  ["null", "5:1: a row is a JSON object"],
  [without("timestamp"), "5: field timestamp: is missing"],
  [without("input_length"), "5: field input_length: is missing"],
  [without("output_length"), "5: field output_length: is missing"],
  [without("hash_ids"), "5: field hash_ids: is not a list"],
  [withField("timestamp", -1), "5: field timestamp: is not in 0..9007199254740991: -1"],
  [withField("timestamp", 4), "5: field timestamp: 4 is before the 5 of the row above"],
  [withField("input_length", 0), "5: field input_length: is not in 1..9007199254740991: 0"],
  [withField("input_length", 600.5), "5: field input_length: is not an integer: 600.5"],
  [withField("output_length", "3"), '5: field output_length: is not a number: "3"'],
  [withField("output_length", null), "5: field output_length: is not a number: null"],
  [withField("input_tokens", 600), "5: field input_tokens: is given beside input_length"],
  [
    withField("hash_ids", [0]),
    "5: field hash_ids: has 1 ids, 600 input tokens in blocks of 512 need 2",
  ],
  [withField("hash_ids", [0, 1.5]), "5: field hash_ids[1]: is not an integer: 1.5"],
  [withField("hash_ids", [0, -7]), "5: field hash_ids[1]: is not in 0..4294967295: -7"],
  [withField("session_id", {}), "5: field session_id: is neither text nor a number: {}"],
  [withField("delay", -2), "5: field delay: is not in 0..9007199254740991: -2"],
] as const;

function without(name: string): string {
  return JSON.stringify({ ...JSON.parse(goodLine), [name]: undefined });
}

function withField(name: string, value: unknown): string {
  return JSON.stringify({ ...JSON.parse(goodLine), [name]: value });
}

t.test(
  "a broken row is named with file, line and place, and nothing of the trace is given",
  async (t) => {
    for (const [line, message] of brokenLines) {
      const lines = [goodLine, goodLine, goodLine, goodLine, line, goodLine];
      const result = await readTrace({ name: "a.jsonl", lines }, { limit: null });
      t.match(result, { ok: false, error: { code: "BATON_TRACE_INVALID" } });
      t.equal(result.ok || result.error.message, `a.jsonl:${message}`);
      t.ok((await readTrace({ name: "a.jsonl", lines }, { limit: 4 })).ok, "behind the limit");
    }
    t.match(await readTrace({ name: "a", lines: [" "] }, { limit: null }), {
      ok: false,
      error: { message: "a: there is no row" },
    });
  },
);

t.test("the error column is null exactly for what JSON.parse takes", (t) => {
  const isJson = (text: string) => {
    try {
      JSON.parse(text);
      return true;
    } catch {
      return false;
    }
  };
  const property = fc.property(
    fc.json(),
    fc.nat(),
    fc.constantFrom("", "x", '"', ",", "]", "\\", "1", "\u0001", "\u007f", " "),
    fc.boolean(),
    (json, place, piece, isCut) => {
      const at = place % (json.length + 1);
      const text = json.slice(0, at) + piece + (isCut ? "" : json.slice(at + 1));
      const column = jsonErrorColumn(text);
      if (isJson(text)) t.equal(column, null, text);
      else t.ok(column !== null && column >= 1 && column <= text.length + 1, text);
    },
  );
  fc.assert(property, { numRuns: 500 });
  t.end();
});

t.test("rows that share k ids share their first 512 k tokens and no block after", (t) => {
  const property = fc.property(
    fc.uniqueArray(fc.integer({ min: 0, max: 2 ** 32 - 1 }), { minLength: 6, maxLength: 6 }),
    fc.integer({ min: 0, max: 3 }),
    fc.integer({ min: 1, max: 1_536 }),
    fc.integer({ min: 1, max: 1_536 }),
    fc.nat(),
    (ids, shared, leftTokens, rightTokens, seed) => {
      const make = (inputTokens: number, tail: readonly number[]) => {
        const blocks = Math.ceil(inputTokens / traceBlockTokens);
        const hashIds = [...ids.slice(0, shared), ...tail].slice(0, blocks);
        return synthesizeTokens(makeRow(hashIds, inputTokens), { ...synthesis, seed });
      };
      const left = make(leftTokens, ids.slice(3, 6));
      const right = make(rightTokens, ids.slice(3, 6).reverse());
      t.equal(left.length, leftTokens);
      let common = 0;
      while (common < Math.min(leftTokens, rightTokens) && left[common] === right[common]) common++;
      const want = Math.min(shared * traceBlockTokens, leftTokens, rightTokens);
      const reach = Math.min(leftTokens, rightTokens);
      t.ok(common >= want, `${common} of ${want} shared`);
      if (want < reach) t.ok(common < want + 16, `${common} shared, ${want} wanted`);
      t.ok(left.every((id) => id >= vocabularyDefault.first && id < vocabularyDefault.end));
    },
  );
  fc.assert(property, { numRuns: 100 });
  const row = makeRow([1, 2], 600);
  t.same(synthesizeTokens(row, synthesis), synthesizeTokens(row, synthesis));
  t.notSame(synthesizeTokens(row, synthesis), synthesizeTokens(row, { ...synthesis, seed: 2 }));
  t.end();
});

t.test(
  "the built-in trace is a valid one with shared prefixes, the same for the same seed",
  async (t) => {
    const rows = generateTrace({ rows: 60, seed: 3 });
    t.same(rows, generateTrace({ rows: 60, seed: 3 }));
    t.notSame(rows, generateTrace({ rows: 60, seed: 4 }));
    const lines = rows.map((row) =>
      JSON.stringify({
        timestamp: row.timestampMs,
        input_length: row.inputTokens,
        output_length: row.outputTokens,
        hash_ids: row.hashIds,
      }),
    );
    t.same(await readTrace({ name: "built in", lines }, { limit: null }), {
      ok: true,
      value: rows,
    });
    t.ok(rows.every((row) => row.hashIds[0] === 0));
    // Each id follows one other id only, in a real trace as here: a prefix tree.
    const parents = new Map<number, number | undefined>();
    for (const { hashIds } of rows) {
      for (const [block, id] of hashIds.entries()) {
        const parent = hashIds[block - 1];
        if (parents.has(id)) t.equal(parents.get(id), parent);
        parents.set(id, parent);
      }
    }
    const { idealHitRatio } = blockUsage(rows, { ...synthesis, model: "m", engineBlockTokens: 16 });
    t.ok(idealHitRatio > 0.3 && idealHitRatio < 0.8, `${idealHitRatio}`);
  },
);

t.test("percentiles are the nearest ranks of all samples", (t) => {
  t.same(percentilesOf([]), { p50: null, p90: null, p99: null });
  t.same(percentilesOf([4]), { p50: 4, p90: 4, p99: 4 });
  t.same(percentilesOf([3, 1, 2, 4]), { p50: 2, p90: 4, p99: 4 });
  const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);
  t.same(percentilesOf(hundred), { p50: 50, p90: 90, p99: 99 });
  const samples = fc.array(fc.double({ noNaN: true }), { minLength: 1 });
  fc.assert(
    fc.property(samples, fc.integer({ min: 1, max: 100 }), (values, percent) => {
      const value = percentile(Float64Array.from(values).sort(), percent)!;
      const atMost = values.filter((other) => other <= value).length;
      const below = values.filter((other) => other < value).length;
      const share = (percent / 100) * values.length;
      return values.includes(value) && atMost >= share && below < share;
    }),
  );
  t.end();
});

t.test("an event stream gives the same payloads however its bytes are cut", (t) => {
  const text = readFileSync(
    new URL("vectors/vllm-completions-stream.txt", import.meta.url),
    "utf8",
  );
  const wanted = text.split("\n\n").filter((event) => event !== "");
  t.equal(wanted.length, 6);
  const streams = [text, `: ping\n\nevent: x\n${text}`, text.replaceAll("\n", "\r\n")];
  const property = fc.property(
    fc.constantFrom(...streams),
    fc.array(fc.nat(3_000), { maxLength: 20 }),
    (stream, places) => {
      const bytes = Buffer.from(stream);
      const payloads: string[] = [];
      const scanner = new SseScanner((payload) => payloads.push(payload.toString()));
      let from = 0;
      for (const place of [...places.sort((a, b) => a - b), bytes.length]) {
        scanner.push(bytes.subarray(from, place));
        from = Math.max(from, Math.min(place, bytes.length));
      }
      t.same(
        payloads,
        wanted.map((event) => event.slice("data: ".length)),
      );
    },
  );
  fc.assert(property, { numRuns: 100 });
  t.end();
});

t.test("ideal reuse and shared blocks agree with a model in sets of text", (t) => {
  const trees = fc.array(
    fc.record({
      ids: fc.array(fc.nat(2), { maxLength: 3 }),
      tail: fc.integer({ min: 1, max: 512 }),
    }),
    { minLength: 1, maxLength: 12 },
  );
  const property = fc.property(
    trees,
    fc.constantFrom(16, 64, 100),
    (prompts, engineBlockTokens) => {
      // An id stands for its block and all before it, so it is made of the path.
      const rows = prompts.map(({ ids, tail }) => {
        const path = [...ids, 9].map((_, depth) =>
          Number(`1${[...ids, 9].slice(0, depth + 1).join("")}`),
        );
        return makeRow(path, ids.length * traceBlockTokens + tail);
      });
      const usage = blockUsage(rows, { ...synthesis, model: "m", engineBlockTokens });
      const seen = new Map<string, number>();
      let reused = 0;
      let total = 0;
      for (const row of rows) {
        const ids = [...synthesizeTokens(row, synthesis)];
        const prefixes: string[] = [];
        for (let end = engineBlockTokens; end <= ids.length; end += engineBlockTokens) {
          prefixes.push(ids.slice(0, end).join());
        }
        const known = prefixes.filter((prefix) => seen.has(prefix)).length;
        const reusable = Math.ceil(ids.length / engineBlockTokens) - 1;
        reused += Math.min(known, reusable) * engineBlockTokens;
        total += ids.length;
        for (const prefix of prefixes) seen.set(prefix, (seen.get(prefix) ?? 0) + 1);
      }
      t.equal(usage.idealHitRatio, reused / total);
      const shared = [...seen.values()].filter((count) => count >= 2).length;
      t.same(usage.counter.shared(), { blocks: shared, computed: 0 });
    },
  );
  fc.assert(property, { numRuns: 40 });
  t.end();
});

t.test("many blocks are counted as few are", (t) => {
  const rows = Array.from({ length: 40 }, (_, index) => makeRow(range(index, 24), 24 * 512));
  const usage = blockUsage([...rows, ...rows], { ...synthesis, model: "m", engineBlockTokens: 16 });
  t.same(usage.counter.shared(), { blocks: 40 * 24 * 32, computed: 0 });
  const total = 80 * 24 * 512;
  t.equal(usage.idealHitRatio, (40 * (24 * 512 - 16)) / total);
  t.end();
});

function range(index: number, count: number): number[] {
  return Array.from({ length: count }, (_, block) => index * 100 + block);
}
