import assert from "node:assert/strict";
import {
  findMember,
  joinChunks,
  memberBytes,
  memberValue,
  readPrefillAnswer,
  scanTopLevel,
  spliceMembers,
  strippedBodyFields,
} from "@baton/openai-api";
import fc from "fast-check";
import t from "tap";

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

function scan(body: Uint8Array) {
  const scanned = scanTopLevel(body);
  if (!scanned.ok) throw new Error(`${scanned.error.message} at ${scanned.error.atByte}`);
  return scanned.value;
}

// Few keys, so that duplicates are common; some need escapes, some have more than one spelling.
const key = fc.oneof(
  fc.constantFrom("a", "b", "kv_transfer_params", 'q"\\', "", "é", "__proto__", "\u{1f600}"),
  fc.string(),
);
// JSON text whose bytes JSON.stringify would not reproduce.
const rawValue = fc.oneof(
  fc.constantFrom("12345678901234567890", "1.0", "1e400", "-0", "1E+2", '"\\u0041\\/"', "[ ]"),
  fc.constantFrom('{"a":[1, {"b":"}]"}]}', '"\\\\"', '"\\\\\\""', "[[],[[]],{}]", '"x\\"y"'),
  fc.json(),
  fc.string({ unit: "grapheme", maxLength: 3_000 }).map((text) => JSON.stringify(text)),
  fc.array(fc.nat(), { maxLength: 300 }).map((ids) => JSON.stringify(ids)),
  fc
    .array(fc.constantFrom("\\\\", '\\"', "word", "\\n", "{k: [}", "€", "x".repeat(300)))
    .map((parts) => `"${parts.join("")}"`),
);
const space = fc.constantFrom("", "", " ", "\n\t", "\r\n  ");
const keyText = fc.tuple(key, fc.boolean()).map(([name, isEscaped]) => {
  if (!isEscaped) return JSON.stringify(name);
  const unit = (at: number) => name.charCodeAt(at).toString(16).padStart(4, "0");
  return `"${[...Array(name.length).keys()].map((at) => `\\u${unit(at)}`).join("")}"`;
});
const member = fc.tuple(space, keyText, space, space, rawValue, space);
const objectText = fc
  .tuple(space, fc.array(member, { maxLength: 8 }), space)
  .map(([before, members, after]) => {
    const texts = members.map(([a, name, b, c, value, d]) => `${a}${name}${b}:${c}${value}${d}`);
    return { text: `${before}{${texts.join(",")}}${after}`, members };
  });

t.test("a scan finds every member with its key and the exact bytes of its value", async () => {
  fc.assert(
    fc.property(objectText, fc.boolean(), ({ text, members }, asBuffer) => {
      const body = asBuffer ? Buffer.from(text) : encode(text);
      const found = scan(body);
      const got = found.map((each) => [each.key, decode(memberValue(body, each))]);
      const wanted = members.map((each) => [JSON.parse(each[1]), each[4]]);
      assert.deepEqual(got, wanted);
      for (const each of found) {
        const whole = decode(body.subarray(each.start, each.end));
        assert.deepEqual(
          JSON.parse(`{${whole}}`),
          JSON.parse(`{${JSON.stringify(each.key)}:${decode(memberValue(body, each))}}`),
        );
      }
    }),
    { numRuns: 300 },
  );
});

t.test("a splice equals the same edit on the parsed object and keeps untouched bytes", async () => {
  const edit = fc.record({
    remove: fc.array(key, { maxLength: 4 }),
    append: fc.uniqueArray(fc.record({ key, value: rawValue, asBytes: fc.boolean() }), {
      maxLength: 3,
      selector: (each) => each.key,
    }),
  });
  fc.assert(
    fc.property(objectText, edit, ({ text, members }, { remove, append }) => {
      const body = encode(text);
      const removed = new Set(remove);
      const appended = append.map((each) => ({
        key: each.key,
        value: each.asBytes ? encode(each.value) : each.value,
      }));
      const chunks = spliceMembers(body, scan(body), { remove: removed, append: appended });
      const result = joinChunks(chunks);
      const kept = members.filter((each) => !removed.has(JSON.parse(each[1])));
      const wanted = [
        ...kept.map((each) => [JSON.parse(each[1]), each[4]]),
        ...append.map((each) => [each.key, each.value]),
      ];
      assert.deepEqual(
        scan(result).map((each) => [each.key, decode(memberValue(result, each))]),
        wanted,
      );
      const parsed = new Map(wanted.map(([name, value]) => [name, JSON.parse(value)]));
      assert.deepEqual(new Map(Object.entries(JSON.parse(decode(result)))), parsed);
      const views = chunks.filter((chunk) => chunk.buffer === body.buffer);
      assert.ok(views.length <= kept.length, "what stays is a view, at most one per member");
    }),
    { numRuns: 300 },
  );
});

t.test("text that is cut off or not an object is refused at every cut", async (t) => {
  fc.assert(
    fc.property(objectText, fc.double({ min: 0, max: 1, noNaN: true }), ({ text }, share) => {
      const body = encode(text.trim());
      const cut = body.subarray(0, Math.floor(share * body.length));
      if (cut.length < body.length) assert.equal(scanTopLevel(cut).ok, false);
    }),
  );
  const refused = [
    "",
    " ",
    "[]",
    '"a"',
    "null",
    "{}{}",
    "{} x",
    "{a:1}",
    "{'a':1}",
    '{"a":1,}',
    '{"a" 1}',
    '{"a":}',
    '{,"a":1}',
    '{"a":[1}}',
    '{"a":{"b":1]}',
    '{"a":tru}',
    '{"a":01}',
    '{"a":NaN}',
    '{"a":1 "b":2}',
    '{"a":"x}',
    '{"a":1}}',
    '{"a\\x":1}',
    '\ufeff{"a":1}',
    '{"a":+1}',
    '{"a":1.}',
    '{"a":--1}',
    `{"a":${"[".repeat(600)}${"]".repeat(600)}}`,
  ];
  for (const text of refused)
    t.notOk(scanTopLevel(encode(text)).ok, JSON.stringify(text.slice(0, 30)));
  t.ok(scanTopLevel(encode(`{"a":${"[".repeat(500)}${"]".repeat(500)}}`)).ok);
});

t.test("whatever JSON.parse takes as an object, a scan takes with the same keys", async () => {
  // Mutations of valid text: where the parser still agrees, no key may be seen differently.
  fc.assert(
    fc.property(objectText, fc.nat(), fc.constantFrom(...'"\\{}[],: \n0a'), ({ text }, at, put) => {
      const index = at % (text.length + 1);
      const changed = text.slice(0, index) + put + text.slice(index + 1);
      let parsed: unknown;
      try {
        parsed = JSON.parse(changed);
      } catch {
        return;
      }
      if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return;
      const body = encode(changed);
      if (decode(body) !== changed) return; // a lone surrogate cannot be sent
      assert.deepEqual(new Set(scan(body).map((each) => each.key)), new Set(Object.keys(parsed)));
    }),
    { numRuns: 2_000 },
  );
});

t.test("long strings with few and many escapes end where they end", async (t) => {
  for (const filler of [
    "x".repeat(10_000),
    '\\"',
    "\\\\",
    '\\\\\\"',
    'prose and \\"quotes\\" ',
    "é\\u0022",
  ]) {
    for (const copies of [1, 7, 33, 999]) {
      const value = `"${filler.repeat(copies)}"`;
      const body = Buffer.from(`{"a":${value},"b":2}`);
      t.equal(findMember(scan(body), "b")?.end, body.length - 1);
    }
  }
});

t.test("fields that steer engines are stripped, whatever their spelling and number", async (t) => {
  const body = encode(
    '{"model":"m","kv\\u005ftransfer_params":{"remote_host":"evil"},"rid":"x","priority":12345678901234567890,' +
      '"bootstrap_room":1,"vllm_xargs":{"kv_transfer_params":{"a":1},"session_id":"s","big":9007199254740993},' +
      '"nvext":{},"data_parallel_rank":3,"request_id":"r","kv_transfer_params":null,"n":1}',
  );
  const clean = decode(
    joinChunks(spliceMembers(body, scan(body), strippedBodyFields(body, scan(body)))),
  );
  t.equal(
    clean,
    '{"model":"m","priority":12345678901234567890,"n":1,"vllm_xargs":{"session_id":"s","big":9007199254740993}}',
  );
  const untouched = encode('{"model":"m","vllm_xargs":{"session_id":"s"}}');
  const chunks = spliceMembers(
    untouched,
    scan(untouched),
    strippedBodyFields(untouched, scan(untouched)),
  );
  t.equal(decode(joinChunks(chunks)), decode(untouched));
  const twice = encode('{"vllm_xargs":{"ec_x":1},"vllm_xargs":{"a":1}}');
  t.equal(
    decode(joinChunks(spliceMembers(twice, scan(twice), strippedBodyFields(twice, scan(twice))))),
    '{"vllm_xargs":{"a":1}}',
  );
});

t.test("a handle is read out of an answer without losing a digit", async (t) => {
  const handle = '{ "remote_block_ids":[[1,2]],"hash":18446744073709551615,"x":1.50 }';
  const answer = encode(
    `{"id":"1","usage":{"prompt_tokens":70,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":64}},"kv_transfer_params":${handle}}`,
  );
  const read = readPrefillAnswer(answer);
  t.ok(read.ok);
  if (!read.ok) return;
  t.equal(decode(read.value.kvTransferParams!), handle);
  t.same(read.value.usage, { promptTokens: 70, completionTokens: 1, cachedTokens: 64 });
  t.equal(decode(memberBytes(answer, "kv_transfer_params")!), handle);
  t.equal(memberBytes(answer, "other"), null);
  const without = readPrefillAnswer(encode('{"kv_transfer_params":null,"usage":null}'));
  t.same(without, { ok: true, value: { kvTransferParams: null, usage: null } });
  const garbage = readPrefillAnswer(encode("<html>"));
  t.match(garbage, { ok: false, error: { code: "BATON_ENGINE_GARBAGE" } });
});
