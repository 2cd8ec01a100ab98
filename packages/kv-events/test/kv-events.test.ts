import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { KvBatch, KvEvent } from "@baton/domain";
import { hashFromBigInt, hashHex, Prng } from "@baton/kit";
import {
  decodeKvBatch,
  encodeKvBatch,
  eventsPerBatchMax,
  extraKeysText,
  hashesPerEventMax,
  liveFrames,
  parseLiveFrames,
  parseReplayFrames,
  parseReplayRequest,
  payloadBytesMax,
  payloadMark,
  replayEndFrames,
  replayFrames,
  replayRequestFrames,
  SequenceTracker,
  tierOfMedium,
} from "@baton/kv-events";
import { decode, encode } from "@msgpack/msgpack";
import fc from "fast-check";
import t, { type Test } from "tap";
import { naiveBatch } from "./naive-batch.ts";

const vectorsFolder = join(import.meta.dirname, "../../../test/vectors/kv-events");

interface Recording {
  readonly events: readonly { label: string; frames: string[]; decoded: unknown }[];
  readonly replays: readonly { label: string; sentFrames: string[]; messages: string[][] }[];
}

interface LayoutVector {
  readonly label: string;
  readonly payload: string;
  readonly encodes?: "map" | "array";
  readonly [field: string]: unknown;
}

interface LayoutVectors {
  readonly batches: readonly LayoutVector[];
  readonly faults: readonly { label: string; payload: string; reason: string }[];
  readonly sequences: { readonly live: readonly [string, string][]; readonly end: string };
}

function readVectors<T>(name: string): T {
  return JSON.parse(readFileSync(join(vectorsFolder, name), "utf8")) as T;
}

function fromHex(hex: string): Uint8Array {
  return new Uint8Array(Buffer.from(hex, "hex"));
}

function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

function mustDecode(payload: Uint8Array): KvBatch {
  const result = decodeKvBatch(payload);
  if (!result.ok) throw new Error(`${result.error.reason} at ${result.error.offsetBytes}`);
  return result.value;
}

/** Hashes as hex and arrays as plain ones, the form of the vectors. */
function plainEvent(event: KvEvent): unknown {
  if (event.kind === "cleared") return event;
  const engineHashes = Array.from({ length: event.engineHashes.length / 2 }, (_, index) =>
    hashHex(event.engineHashes, index),
  );
  if (event.kind === "removed") return { ...event, engineHashes };
  const parentEngineHash = event.parentEngineHash && hashHex(event.parentEngineHash, 0);
  return { ...event, engineHashes, parentEngineHash, tokenIds: [...event.tokenIds] };
}

t.test("every layout of the contract decodes to what it says", (t) => {
  const { batches, faults } = readVectors<LayoutVectors>("layouts.json");
  t.ok(batches.length >= 25 && faults.length >= 9, "the vectors are there");
  for (const { label, payload, encodes, ...expected } of batches) {
    const batch = mustDecode(fromHex(payload));
    t.strictSame({ ...batch, events: batch.events.map(plainEvent) }, expected, label);
    if (encodes === undefined) continue;
    t.equal(toHex(encodeKvBatch({ ...batch, form: encodes })), payload, `${label}, written again`);
  }
  for (const { label, payload, reason } of faults) {
    const result = decodeKvBatch(fromHex(payload));
    t.match(result, { ok: false, error: { reason } }, `fault: ${label}`);
    if (!result.ok) t.ok(result.error.offsetBytes <= payload.length / 2, "the offset lies inside");
  }
  t.end();
});

t.test("recordings of real engines decode to what their own decoder saw", (t) => {
  const names = ["vllm-0.32.json", "sglang-0.5.23.json", "lmcache-0.5.6.json"];
  let rewritten = 0;
  for (const name of names) {
    const recording = readVectors<Recording>(name);
    t.ok(recording.events.length > 1, `${name} has events`);
    for (const { label, frames, decoded } of recording.events) {
      const message = parseLiveFrames(frames.map(fromHex));
      if (!message.ok) throw new Error(message.error);
      const batch = mustDecode(message.value.payload);
      t.strictSame(batch, naiveBatch(decoded), `${name}: ${label}`);
      // vLLM's bytes are reproduced where nothing was dropped on the way in.
      const isWhole = !/session|LoRA|bytes|hybrid/.test(label) && name.startsWith("vllm");
      if (!isWhole) continue;
      t.equal(
        toHex(encodeKvBatch({ ...batch, form: "map" })),
        frames[2],
        `${label}, written again`,
      );
      rewritten += 1;
    }
    for (const { label, sentFrames, messages } of recording.replays)
      checkReplay(t, label, sentFrames, messages);
  }
  t.ok(rewritten >= 10, "the writer was compared with recordings");
  t.end();
});

function checkReplay(t: Test, label: string, sent: string[], messages: string[][]): void {
  const request = parseReplayRequest([fromHex("6964"), ...sent.map(fromHex)]);
  if (messages.length === 0) {
    t.equal(request, null, `${label}: a malformed request, unanswered`);
    return;
  }
  t.ok(request !== null, `${label}: a request`);
  messages.forEach((frames, index) => {
    const message = parseReplayFrames(frames.map(fromHex));
    if (!message.ok) throw new Error(message.error);
    if (index === messages.length - 1) {
      t.strictSame(message.value, { kind: "end" }, `${label}: end marker`);
      t.strictSame(replayEndFrames("topic").map(toHex), frames, "the end marker is written alike");
      return;
    }
    if (message.value.kind !== "batch") throw new Error("an end marker before the end");
    const { sequence, payload } = message.value;
    if (index === 0) t.equal(sequence, request!.from, `${label}: starts where asked`);
    t.strictSame(mustDecode(payload), naiveBatch(decode(payload, { useBigInt64: true })));
    const topic = Buffer.from(frames[1]!, "hex").toString();
    t.strictSame(replayFrames("topic", topic, sequence, payload).map(toHex), frames);
  });
}

t.test("a whole folder of recordings decodes, when BATON_CAPTURES names one", (t) => {
  const folder = process.env["BATON_CAPTURES"];
  if (folder === undefined) {
    t.comment("BATON_CAPTURES is not set: the cuts in test/vectors/kv-events were read");
    t.end();
    return;
  }
  for (const file of globSync("**/*.jsonl", { cwd: folder })) {
    let frames = 0;
    for (const line of readFileSync(join(folder, file), "utf8").split("\n")) {
      if (line !== "") frames += checkRecordedLine(t, file, JSON.parse(line));
    }
    if (frames > 0) t.comment(`${file}: ${frames} payloads`);
  }
  t.end();
});

interface RecordedLine {
  readonly kind: string;
  readonly frames?: string[];
  readonly decoded?: unknown;
  readonly messages?: readonly { frames: string[] }[];
}

/** Compares only failures one by one, so that a big folder stays readable. */
function checkRecordedLine(t: Test, file: string, line: RecordedLine): number {
  if (line.kind === "event" && line.frames?.length === 3) {
    const got = mustDecode(fromHex(line.frames[2]!));
    const want = naiveBatch(line.decoded);
    if (!isSame(got, want)) t.strictSame(got, want, file);
    return 1;
  }
  if (line.kind !== "replay") return 0;
  let count = 0;
  for (const { frames } of line.messages ?? []) {
    const message = parseReplayFrames(frames.map(fromHex));
    if (!message.ok) t.fail(`${file}: ${message.error}`);
    else if (message.value.kind === "batch") {
      const got = mustDecode(message.value.payload);
      const want = naiveBatch(decode(message.value.payload, { useBigInt64: true }));
      if (!isSame(got, want)) t.strictSame(got, want, file);
      count += 1;
    }
  }
  return count;
}

function isSame(left: unknown, right: unknown): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

const word64 = fc.oneof(
  fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
  fc.bigInt({ min: 0n, max: 300n }),
  fc.constantFrom(0x8000_0000_0000_0001n, (1n << 53n) + 1n, 0xffff_ffffn, 0x1_0000_0000n),
);
const name = fc.string({ unit: "grapheme", minLength: 1, maxLength: 40 });
const medium = fc.constantFrom("GPU", "CPU", "cpu", "STORAGE", "something new", null);
const token = fc.oneof(fc.nat(300), fc.nat(200_000), fc.nat(0xffff_ffff));

/** Events as engines can mean them; `naiveBatch` and both encoders agree on all of these. */
const storedEvent = fc
  .record({
    blockCount: fc.integer({ min: 1, max: 20 }),
    blockSizeTokens: fc.constantFrom(0, 1, 2, 16),
    isRoot: fc.boolean(),
    loraName: fc.option(name, { freq: 3 }),
    cacheSalt: fc.option(name, { freq: 3 }),
    image: fc.option(fc.tuple(name, fc.integer({ min: -40, max: 40 })), { freq: 3 }),
    digest: fc.option(fc.uint8Array({ minLength: 32, maxLength: 32 }), { freq: 2 }),
    groupIndex: fc.option(fc.nat(300)),
    specKind: fc.option(fc.constantFrom("full_attention", "mla_attention", "some_kind")),
    medium,
    words: fc.array(word64, { minLength: 21, maxLength: 21 }),
    tokens: fc.array(token, { minLength: 320, maxLength: 320 }),
  })
  .map((draw): KvEvent => {
    const { blockCount, blockSizeTokens, groupIndex, specKind, loraName } = draw;
    const keys = [...(draw.image ? [draw.image] : []), ...(draw.digest ? [draw.digest] : [])];
    const text = extraKeysText(keys);
    const parent = draw.isRoot ? null : hashFromBigInt(draw.words[20]! || 1n);
    return {
      kind: "stored",
      engineHashes: hashFromBigInt(...draw.words.slice(0, blockCount)),
      parentEngineHash: parent,
      tokenIds: Uint32Array.from(draw.tokens.slice(0, blockCount * blockSizeTokens)),
      blockSizeTokens,
      medium: draw.medium,
      loraName,
      cacheSalt: parent === null ? draw.cacheSalt : null,
      extraKeys:
        text === null ? null : Array.from({ length: blockCount }, (_, i) => (i % 2 ? null : text)),
      groupIndex,
      specKind,
    };
  });
const otherEvent: fc.Arbitrary<KvEvent> = fc.oneof(
  fc.constant<KvEvent>({ kind: "cleared" }),
  fc
    .tuple(fc.array(word64, { maxLength: 20 }), medium, fc.option(fc.nat(70_000)))
    .map(([words, medium, groupIndex]): KvEvent => {
      return { kind: "removed", engineHashes: hashFromBigInt(...words), medium, groupIndex };
    }),
);
const anyBatch = fc.record({
  engineTimeS: fc.double({ noNaN: true, noDefaultInfinity: true }),
  dpRank: fc.option(fc.nat(1000)),
  events: fc.array(fc.oneof(storedEvent, otherEvent), { maxLength: 8 }),
  form: fc.constantFrom("map" as const, "array" as const),
});

t.test("what our writer writes, our reader and a plain one over msgpack read alike", (t) => {
  fc.assert(
    fc.property(anyBatch, (batch) => {
      const payload = encodeKvBatch(batch);
      const got = mustDecode(payload);
      mustEqual(t, got, { ...omitForm(batch), skipped: {} }, "what was written");
      const document = decode(payload, { useBigInt64: true });
      mustEqual(t, got, naiveBatch(document), "what the plain reader reads");
      const again = mustDecode(encode(document, { useBigInt64: true }));
      mustEqual(t, again, got, "the library's encoding");
    }),
    { numRuns: 300 },
  );
  t.pass("300 batches");
  t.end();
});

function omitForm(batch: { form: unknown } & Omit<KvBatch, "skipped">): Omit<KvBatch, "skipped"> {
  const { form: _, ...rest } = batch;
  return rest;
}

function mustEqual(t: Test, got: unknown, want: unknown, what: string): void {
  if (isSame(got, want)) return;
  t.strictSame(got, want, what);
  throw new Error(`differs from ${what}`);
}

/** Any msgpack value a future engine might put anywhere. */
const { value: anyValue } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.constantFrom(null, true, false, 0, -1, 2 ** 40, 1.5),
    word64,
    fc.bigInt({ min: -(1n << 63n), max: -1n }),
    fc.string({ maxLength: 40 }),
    fc.uint8Array({ maxLength: 40 }),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(fc.string({ maxLength: 5 }), tie("value"), { maxKeys: 4 }),
  ),
}));

t.test("unknown events, whatever they hold, cost none of the good ones around them", (t) => {
  const bad = fc.oneof(
    anyValue.filter((value) => !Array.isArray(value) && !isPlainObject(value)),
    anyValue.map((value) => ["BlockEvaporated", value, value]),
    anyValue.map((value) => ({ type: "BlockEvaporated", block_hashes: value })),
    anyValue.map((value) => ["BlockRemoved", { not: value }]),
  );
  const good = {
    type: "BlockRemoved",
    block_hashes: [1, 2],
    medium: "GPU",
    novel: [1, { two: 2 }],
  };
  fc.assert(
    fc.property(fc.array(bad, { maxLength: 6 }), fc.nat(6), (others, place) => {
      const events = [...others];
      events.splice(place, 0, good);
      const batch = mustDecode(encode([1.5, [...events, good], 3], { useBigInt64: true }));
      const skipped = Object.entries(batch.skipped).reduce(
        (sum, [reason, count]) => sum + (reason === "unknown_key" ? 0 : (count ?? 0)),
        0,
      );
      return batch.events.length === 2 && skipped === others.length && batch.dpRank === 3;
    }),
    { numRuns: 500 },
  );
  t.pass("500 batches");
  t.end();
});

function isPlainObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !(value instanceof Uint8Array);
}

t.test("damaged payloads never throw and never make more than they could hold", (t) => {
  const recordings = ["vllm-0.32.json", "sglang-0.5.23.json"].flatMap(
    (file) => readVectors<Recording>(file).events,
  );
  const seeds = recordings.map(({ frames }) => fromHex(frames[2]!)).filter((p) => p.length < 3000);
  seeds.push(...readVectors<LayoutVectors>("layouts.json").batches.map((v) => fromHex(v.payload)));
  const seed = Date.now() >>> 0;
  const prng = new Prng(seed);
  let read = 0;
  for (let run = 0; run < 20_000; run++) {
    const payload = mutate(prng, seeds);
    try {
      const result = decodeKvBatch(payload);
      if (result.ok) read += 1;
      const words = result.ok ? wordsIn(result.value) : 0;
      if (words > 2 * payload.length + 2) t.fail(`${words} words from ${payload.length} bytes`);
      if (!result.ok && result.error.offsetBytes > payload.length) t.fail("offset past the end");
    } catch (error) {
      t.fail(`threw on ${toHex(payload)}, seed ${seed}`, { error });
      break;
    }
  }
  t.ok(read > 500 && read < 19_500, `some stayed readable, some did not: ${read}, seed ${seed}`);
  t.end();
});

function mutate(prng: Prng, seeds: readonly Uint8Array[]): Uint8Array {
  const payload = Uint8Array.from(seeds[prng.below(seeds.length)]!);
  const kind = prng.below(4);
  if (kind === 0) return payload.subarray(0, prng.below(payload.length));
  if (kind === 1) {
    const other = seeds[prng.below(seeds.length)]!;
    const cut = prng.below(payload.length);
    return Uint8Array.from([
      ...payload.subarray(0, cut),
      ...other.subarray(prng.below(other.length)),
    ]);
  }
  for (let flips = 1 + prng.below(4); flips > 0; flips--) {
    const at = prng.below(payload.length);
    payload[at] = kind === 2 ? payload[at]! ^ (1 << prng.below(8)) : prng.below(256);
  }
  return payload;
}

function wordsIn(batch: KvBatch): number {
  let words = 0;
  for (const event of batch.events) {
    if (event.kind === "cleared") continue;
    words += event.engineHashes.buffer.byteLength / 4;
    if (event.kind === "stored") words += event.tokenIds.buffer.byteLength / 4;
  }
  return words;
}

t.test("sizes over a cap are refused before anything is allocated", (t) => {
  const stored = (hashes: number, tokens: number): Uint8Array =>
    encode([
      1.5,
      [
        ["BlockStored", Array(hashes).fill(1), null, Array(tokens).fill(1), 16],
        ["AllBlocksCleared"],
      ],
      0,
    ]);
  const tooMany = mustDecode(stored(hashesPerEventMax + 1, 16));
  t.strictSame(tooMany.skipped, { too_large: 1 });
  t.strictSame(tooMany.events, [{ kind: "cleared" }]);
  t.strictSame(mustDecode(stored(1, 1_048_577)).skipped, { too_large: 1 });
  t.equal(
    mustDecode(stored(hashesPerEventMax, 16 * hashesPerEventMax)).events.length,
    2,
    "at the cap",
  );
  const events = encode([1.5, Array(eventsPerBatchMax + 1).fill(null), 0]);
  t.match(decodeKvBatch(events), { ok: false, error: { reason: "too_many_events" } });
  const huge = new Uint8Array(payloadBytesMax + 1);
  t.match(decodeKvBatch(huge), { ok: false, error: { reason: "too_large" } });
  const deep = new Uint8Array(1_000_000).fill(0x91);
  t.match(decodeKvBatch(deep), { ok: false }, "depth costs no stack");
  const deepEvent = Uint8Array.from([0x92, 0x01, 0x91, ...deep.subarray(0, 100_000), 0xc0]);
  t.match(mustDecode(deepEvent), { events: [], skipped: { bad_field: 1 } });
  t.end();
});

t.test("frames keep sequences beyond 2^53 exact, and topics lose their metadata", (t) => {
  const { sequences } = readVectors<LayoutVectors>("layouts.json");
  for (const [hex, decimal] of sequences.live) {
    const message = parseLiveFrames([fromHex(""), fromHex(hex), fromHex("90")]);
    t.match(message, { ok: true, value: { topic: "", epoch: null } });
    t.equal(message.ok && message.value.sequence, BigInt(decimal));
    t.equal(toHex(liveFrames("", BigInt(decimal), fromHex("90"))[1]!), hex);
    t.equal(
      parseReplayRequest([fromHex("00"), ...replayRequestFrames(BigInt(decimal))])?.from,
      BigInt(decimal),
    );
  }
  const topic = Buffer.from("kv@a\0sgl-kv-epoch=e7\0sgl-kv-snapshot=1");
  t.match(parseLiveFrames([topic, fromHex("0000000000000001"), fromHex("90")]), {
    value: { topic: "kv@a", epoch: "e7", sequence: 1n },
  });
  t.match(parseLiveFrames([topic, fromHex("01")]), { ok: false, error: "frame_count" });
  t.match(parseLiveFrames([topic, fromHex("01"), topic]), { ok: false, error: "sequence_length" });
  for (const form of ["topic", "plain"] as const) {
    t.strictSame(parseReplayFrames(replayEndFrames(form)), { ok: true, value: { kind: "end" } });
    t.match(parseReplayFrames(replayFrames(form, "kv", 7n, fromHex("90"))), {
      value: { kind: "batch", sequence: 7n },
    });
  }
  t.match(parseReplayFrames([fromHex("")]), { ok: false, error: "frame_count" });
  t.match(parseReplayFrames([]), { ok: false, error: "frame_count" });
  t.match(parseReplayFrames(["", "01", "90"].map(fromHex)), {
    ok: false,
    error: "sequence_length",
  });
  t.equal(parseReplayRequest(["00", "00"].map(fromHex)), null);
  t.equal(parseReplayRequest(["00", "", "010203040506070809"].map(fromHex)), null);
  t.end();
});

t.test("media of every engine map to a tier, others to none", (t) => {
  const expected = {
    gpu: ["GPU", "gpu", "DEVICE", "cuda:0", "cuda"],
    host: ["CPU", "cpu", "CPU_PINNED", "cpu:0", "CPU_TIER1"],
    disk: ["FS", "OBJ", "STORAGE", "DISK", "disk", "EXTERNAL"],
    unknown: ["", "tape", "cpuset", "cuda:x", "constructor"],
  };
  for (const [tier, media] of Object.entries(expected)) {
    for (const each of media) t.equal(tierOfMedium(each), tier, each);
  }
  t.equal(tierOfMedium(null), "gpu", "engines without media have only the GPU");
  t.end();
});

t.test("a sequence is continued, repeated, ahead, or of another life", (t) => {
  for (const start of [0n, 1_760_000_000_000_000_000n]) {
    const tracker = new SequenceTracker();
    const offer = (offset: bigint, mark: number, source: "live" | "place" = "live"): string => {
      const verdict = tracker[source](start + offset, mark);
      if (verdict === "accept") tracker.advance(start + offset, mark);
      return verdict;
    };
    t.equal(offer(0n, 10), "accept", "any start");
    t.equal(offer(0n, 10), "duplicate", "the same message again");
    t.equal(offer(0n, 11), "restart", "the same number with other content");
    t.equal(offer(3n, 13), "gap");
    t.equal(tracker.isBehindLive, true);
    t.equal(offer(1n, 11, "place"), "accept");
    t.equal(offer(2n, 12, "place"), "accept");
    t.equal(offer(3n, 13, "place"), "accept");
    t.equal(tracker.isBehindLive, false);
    t.equal(offer(4n, 14, "place"), "accept", "a replay may run ahead");
    t.equal(offer(5n, 15, "place"), "accept");
    t.equal(offer(4n, 14), "duplicate", "and the live stream come after");
    t.equal(offer(5n, 99), "restart", "unless it is not the same message");
    t.equal(offer(2n, 12), "restart", "the live stream went back");
    tracker.restart();
    t.equal(offer(1n, 50), "accept");
  }
  const payload = encodeKvBatch({ engineTimeS: 1.5, dpRank: 0, events: [], form: "map" });
  const later = encodeKvBatch({ engineTimeS: 1.6, dpRank: 0, events: [], form: "map" });
  t.equal(payloadMark(payload), payloadMark(payload.slice()));
  t.not(payloadMark(payload), payloadMark(later), "time stamps tell lives apart");
  t.end();
});
