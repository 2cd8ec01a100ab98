import { batonError } from "@baton/domain";
import {
  decisionsAnswer,
  fleet,
  type MessageOf,
  outcome,
  place,
  placed,
  protocolMajor,
  reserved,
  subjectOf,
} from "@baton/protocol";
import { decode, encode } from "@msgpack/msgpack";
import fc from "fast-check";
import t from "tap";

const countOrUnknown = fc.option(fc.maxSafeNat(), { nil: null });

const placeMessage: fc.Arbitrary<MessageOf<typeof place>> = fc.record({
  requestId: fc.string(),
  attempt: fc.nat(),
  frontend: fc.record({ frontendId: fc.string(), incarnation: fc.string() }),
  promptTokens: countOrUnknown,
  promptBytes: fc.nat(),
  hashSets: fc.array(
    fc.record({ blockSizeTokens: fc.nat(), hashes: fc.uint8Array({ maxLength: 80 }) }),
    { maxLength: 3 },
  ),
  maxOutputTokens: countOrUnknown,
  deadlineMs: fc.nat(),
  excluded: fc.array(fc.string(), { maxLength: 4 }),
});

t.test("a place message survives the wire, with unknown and zero kept apart", async (t) => {
  fc.assert(
    fc.property(placeMessage, (value) => {
      const read = place.decode(place.encode(value));
      t.equal(read.ok, true);
      if (read.ok) t.same(read.value, value);
    }),
    { numRuns: 200 },
  );
});

t.test("absent, unknown and zero survive as three things", async (t) => {
  const rejected = (error: ReturnType<typeof batonError>) =>
    placed.decode(placed.encode({ kind: "rejected", error }));
  const without = rejected(batonError("BATON_SATURATED", "full"));
  const withZero = rejected(batonError("BATON_SATURATED", "full", { retryAfterS: 0 }));
  t.same(without.ok && without.value, {
    kind: "rejected",
    error: { code: "BATON_SATURATED", message: "full" },
  });
  t.same(withZero.ok && withZero.value, {
    kind: "rejected",
    error: { code: "BATON_SATURATED", message: "full", retryAfterS: 0 },
  });
  const stage = { kind: "prefilled", legMs: 0, cachedTokens: null, promptTokens: 0 } as const;
  const read = outcome.decode(
    outcome.encode({
      requestId: "r",
      attempt: 0,
      frontend: { frontendId: "f", incarnation: "1" },
      stage,
    }),
  );
  t.same(read.ok && read.value.stage, stage);
});

t.test("every outcome stage survives the wire", async (t) => {
  const stages: MessageOf<typeof outcome>["stage"][] = [
    { kind: "moved", prefill: { workerId: "p", incarnation: "1" } },
    { kind: "returned", reason: "late" },
    { kind: "prefilled", legMs: 1.5, cachedTokens: 3, promptTokens: null },
    { kind: "prefill-failed", workerFault: true, reason: "500" },
    { kind: "first-byte", legMs: 2 },
    { kind: "ended", end: "client-closed", workerFault: false, outputTokens: null, reason: "" },
  ];
  for (const stage of stages) {
    const value = {
      requestId: "r",
      attempt: 2,
      frontend: { frontendId: "f", incarnation: "1" },
      stage,
    };
    const read = outcome.decode(outcome.encode(value));
    t.same(read.ok && read.value, value);
  }
});

t.test("unknown fields of a newer minor version are ignored", async (t) => {
  const envelope = decode(
    reserved.encode({ kind: "refused", error: batonError("BATON_DEADLINE", "late") }),
  ) as {
    b: Record<string, unknown>;
    v: number[];
  };
  envelope.b["newField"] = { deep: [1, 2] };
  envelope.v = [protocolMajor, 99];
  const read = reserved.decode(encode(envelope));
  t.equal(read.ok, true);
});

t.test(
  "an error code of a newer minor version stays an error, with the code as its cause",
  async (t) => {
    const envelope = decode(
      placed.encode({ kind: "rejected", error: batonError("BATON_DEADLINE", "late") }),
    ) as {
      b: { error: { code: string } };
    };
    envelope.b.error.code = "BATON_FROM_THE_FUTURE";
    const read = placed.decode(encode(envelope));
    t.same(read.ok && read.value, {
      kind: "rejected",
      error: {
        code: "BATON_BUS_HANDLER_FAILED",
        message: "late",
        cause: "unknown code BATON_FROM_THE_FUTURE",
      },
    });
  },
);

t.test("an unknown major version is refused with both versions named", async (t) => {
  const envelope = decode(
    outcome.encode({
      requestId: "r",
      attempt: 0,
      frontend: { frontendId: "f", incarnation: "1" },
      stage: { kind: "returned", reason: "" },
    }),
  ) as { v: number[] };
  envelope.v = [protocolMajor + 1, 0];
  const read = outcome.decode(encode(envelope));
  t.match(read, {
    ok: false,
    error: { code: "BATON_PROTOCOL_MAJOR", message: /major version 2.*speaks 1/ },
  });
});

t.test("a malformed message names the field at fault and never throws", async (t) => {
  const cases: [Uint8Array, RegExp][] = [
    [new Uint8Array(), /not msgpack/],
    [encode(7), /not a map/],
    [encode({ v: [1, 0], t: "other", b: {} }), /t: is "other"/],
    [encode({ v: [1, 0], t: "fleet", b: { model: "m" } }), /pool/],
    [encode({ v: [1, 0], t: "fleet", b: [] }), /not a map/],
  ];
  for (const [payload, message] of cases) {
    t.match(fleet.decode(payload), {
      ok: false,
      error: { code: "BATON_PROTOCOL_MALFORMED", message },
    });
  }
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (payload) => {
      decisionsAnswer.decode(payload);
    }),
  );
});

t.test("the bytes on the wire are pinned", async (t) => {
  const payload = reserved.encode({
    kind: "local",
    decode: { workerId: "d0", incarnation: "1", url: "http://a:1", dialect: "vllm", dpRank: null },
  });
  t.equal(
    Buffer.from(payload).toString("hex"),
    "83a176920100a174a87265736572766564a16282a46b696e64a56c6f63616ca66465636f646585a8776f726b65724964a26430ab696e6361726e6174696f6ea131a375726caa687474703a2f2f613a31a76469616c656374a4766c6c6da6647052616e6bc0",
  );
});

t.test("a model's name becomes one safe subject token, and two names never the same", async (t) => {
  t.equal(
    subjectOf("Qwen/Qwen3-32B.v2 x", "prefill", "place"),
    "baton.v1.Qwen~2fQwen3-32B~2ev2~20x.prefill.place",
  );
  fc.assert(
    fc.property(fc.string(), fc.string(), (left, right) => {
      const token = subjectOf(left, "decode", "fleet");
      return (
        /^[A-Za-z0-9_~.-]+$/.test(token) &&
        (left === right) === (token === subjectOf(right, "decode", "fleet"))
      );
    }),
  );
  t.pass();
});
