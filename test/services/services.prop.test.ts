import type { RecordingSink } from "@baton/ports/testing";
import { handle, handleAnswer, outcome, subjectOf } from "@baton/protocol";
import fc from "fast-check";
import t from "tap";
import { World, type WorldOptions } from "./world.ts";

/** What the frontend learnt of each claim it made: claimed, or why not. */
function claimsOf(world: World): Map<string, { readonly decode: string; readonly said: string }[]> {
  const claims = new Map<string, { decode: string; said: string }[]>();
  for (const { subject, payload, answer } of world.frontendBus.requests) {
    if (subject !== subjectOf("m", "decode", "handle")) continue;
    const asked = handle.decode(payload);
    if (!asked.ok) throw new Error(asked.error.message);
    const read = answer?.ok === true ? handleAnswer.decode(answer.value) : null;
    const value = read?.ok === true ? read.value : null;
    const said =
      value === null ? "no answer in time" : value.kind === "refused" ? value.reason : "claimed";
    const { handleId, decode } = asked.value;
    claims.set(handleId, [...(claims.get(handleId) ?? []), { decode: decode.workerId, said }]);
  }
  return claims;
}

/** The attempts that began, and how often each was reported as ended, by pool. */
function endingsOf(world: World): { begun: Set<string>; ended: Map<string, number> } {
  const begun = new Set<string>();
  const ended = new Map<string, number>();
  for (const { call } of world.engineClient.exchanges) begun.add(call.headers["x-request-id"]!);
  for (const { subject, payload } of world.frontendBus.published) {
    const read = outcome.decode(payload);
    if (!read.ok || read.value.stage.kind !== "ended") continue;
    const key = `${read.value.requestId}-${read.value.attempt} ${subject.split(".").at(-2)}`;
    ended.set(key, (ended.get(key) ?? 0) + 1);
  }
  return { begun, ended };
}

/** The error that a client got, whole or at the end of its stream; else nothing. */
function endOf(sink: RecordingSink): string {
  return sink.lastError?.code ?? /"code":"\w+"/.exec(sink.text)?.[0] ?? "";
}

/** Every promise that holds for any world; throws with what broke. */
function check(world: World, { mood }: WorldOptions): void {
  const problems: string[] = [];
  const expect = (isTrue: boolean, problem: string) => {
    if (!isTrue) problems.push(problem);
  };
  for (const [requestId, sink] of world.sinks) {
    expect(sink.isOver, `${requestId} has no end: ${sink.state}`);
    const legs = new Set(sink.text.match(/"leg":"[^"]+"/g) ?? []);
    expect(legs.size <= 1, `${requestId} got bytes of ${[...legs].join(" and ")}`);
    if (sink.state === "ended" && sink.status === 200 && endOf(sink) === "") {
      const isWhole = world.streams.has(requestId)
        ? sink.text.endsWith("data: [DONE]\n\n")
        : sink.text !== "";
      expect(isWhole, `${requestId} got a cut answer as a whole one`);
    }
    if (mood === "calm") {
      expect(sink.state === "ended" && sink.status === 200, `${requestId} was not served`);
    }
  }
  const results = [...world.frontendMetrics.series].filter(([key]) =>
    key.startsWith("baton_frontend_requests_total"),
  );
  const counted = results.reduce((sum, [, value]) => sum + value, 0);
  expect(counted === world.sinks.size, `${counted} ends of ${world.sinks.size} requests`);
  const live = world.frontendMetrics.value("baton_frontend_live_requests");
  expect(live === 0, `${live} requests live`);

  const gauges =
    /^baton_(worker_live_leases|scheduler_live_leases|transfer_(open|reserved|ingress)|decode_kv_promised)/;
  for (const series of [world.prefillMetrics.series, world.decodeMetrics.series]) {
    const held = [...series].filter(([key]) => gauges.test(key));
    expect(held.length >= 4, "gauges are there");
    for (const [key, value] of held) expect(value === 0, `${key} is ${value}`);
  }

  const { begun, ended } = endingsOf(world);
  for (const [key, count] of ended) expect(count === 1, `${key} ended ${count} times`);
  for (const attempt of begun) {
    for (const pool of ["prefill", "decode"]) {
      expect(ended.has(`${attempt} ${pool}`), `${attempt} never ended for ${pool}`);
    }
  }
  for (const { isOver, isAborted, call } of world.engineClient.exchanges) {
    const id = call.headers["x-request-id"]!;
    expect(isOver, `${call.workerId} still works on ${id}`);
    const sink = world.sinks.get(id.replace(/-\d+$/, ""))!;
    const isUnwanted = sink.state === "left" || /BATON_DEADLINE/.test(endOf(sink));
    expect(!isAborted || isUnwanted, `${id} was aborted while its client waited`);
  }

  const claims = claimsOf(world);
  for (const { id, engineRequestId, presentedTo } of world.engines.handles.values()) {
    const asked = claims.get(id) ?? [];
    expect(asked.length === 1, `${id} of ${engineRequestId} was claimed ${asked.length} times`);
    // A handle is presented where the broker said, or nowhere: also for a client that is gone.
    const granted = asked.filter(({ said }) => said === "claimed").map(({ decode }) => decode);
    expect(
      JSON.stringify(presentedTo) === JSON.stringify(granted),
      `${id} of ${engineRequestId} was granted for [${granted}] and presented to [${presentedTo}]`,
    );
    for (const { said } of asked) {
      const isKnown =
        /^claimed$|^no answer in time$|holds no reservation|expires in|restarted since/.test(said);
      expect(isKnown && (mood === "rough" || said === "claimed"), `${id} was refused: ${said}`);
    }
  }
  if (mood === "calm") {
    for (const metrics of [world.prefillMetrics, world.decodeMetrics]) {
      for (const [key, value] of metrics.series) {
        if (key.startsWith("baton_scheduler_leases_lost"))
          expect(value === 0, `${key} is ${value}`);
      }
    }
  }
  if (problems.length > 0) throw new Error(problems.slice(0, 20).join("\n"));
}

async function play(options: WorldOptions): Promise<World> {
  const world = new World(options);
  await world.play();
  check(world, options);
  await world.close();
  if (world.timers.pending > 0) throw new Error(`${world.timers.pending} timers are left`);
  return world;
}

const seed = fc.noShrink(fc.integer({ min: 0, max: 2 ** 31 }));

t.test("when all goes well every request is served and every handle pulled", async (t) => {
  let handles = 0;
  await fc.assert(
    fc.asyncProperty(seed, fc.integer({ min: 1, max: 60 }), async (seed, requests) => {
      const world = await play({ seed, requests, mood: "calm" });
      handles += world.engines.handles.size;
    }),
    { numRuns: 8 },
  );
  t.ok(handles > 20, `${handles} handles`);
});

t.test(
  "whatever fails, delays or leaves, every request ends once and nothing stays held",
  async (t) => {
    const seen = {
      requests: 0,
      served: 0,
      handles: 0,
      refused: 0,
      abandoned: 0,
      retried: 0,
      left: 0,
      lost: 0,
    };
    await fc.assert(
      fc.asyncProperty(seed, fc.integer({ min: 20, max: 80 }), async (seed, requests) => {
        const world = await play({ seed, requests, mood: "rough" });
        const value = (name: Parameters<typeof world.frontendMetrics.value>[0]) =>
          world.frontendMetrics.value(name) ?? 0;
        seen.requests += requests;
        seen.handles += world.engines.handles.size;
        seen.abandoned += value("baton_frontend_abandoned_legs_total");
        seen.retried += value("baton_frontend_attempts_retried_total");
        for (const claims of claimsOf(world).values()) {
          seen.refused += claims.filter(({ said }) => said !== "claimed").length;
        }
        for (const sink of world.sinks.values()) {
          seen.left += sink.state === "left" ? 1 : 0;
          seen.served +=
            sink.state === "ended" && sink.status === 200 && endOf(sink) === "" ? 1 : 0;
        }
        const cause = "worker restarted";
        for (const [metrics, pool] of [
          [world.prefillMetrics, "prefill"],
          [world.decodeMetrics, "decode"],
        ] as const) {
          seen.lost += metrics.value("baton_scheduler_leases_lost_total", { pool, cause }) ?? 0;
        }
      }),
      { numRuns: 25 },
    );
    t.comment(JSON.stringify(seen));
    for (const [what, count] of Object.entries(seen)) t.ok(count > 0, `${what} happened`);
  },
);

t.test("the same seed plays the same world to the last byte, another one another", async (t) => {
  const options = { requests: 60, mood: "rough" } as const;
  const [first, again, other] = [
    await play({ ...options, seed: 11 }),
    await play({ ...options, seed: 11 }),
    await play({ ...options, seed: 12 }),
  ].map((world) => JSON.stringify(world.history()));
  t.ok(first!.length > 10_000);
  t.ok(again === first, "equal seeds, equal decisions, legs and answers");
  t.ok(other !== first);
});
