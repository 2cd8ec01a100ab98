import t from "tap";
import { answerTo, completion, eventsOf, post, promptOf } from "./support/answers.ts";
import { comesToRest } from "./support/at-rest.ts";
import { ledgerOf, setFaults } from "./support/engine.ts";
import {
  decisionsOf,
  startFleet,
  startProcessFleet,
  winnerTerm,
  workersOf,
} from "./support/fleet.ts";
import { until } from "./support/until.ts";

t.test(
  "a leg that fails before the first byte is planned again once, on another worker",
  async (t) => {
    const fleet = await startFleet(t, { prefill: 2, decode: 2, speed: 20 });
    const cases = [
      { pool: "prefill", engines: fleet.prefillEngines, faults: { failPrefill: 1 } },
      { pool: "prefill", engines: fleet.prefillEngines, faults: { garbage: 1 } },
      { pool: "decode", engines: fleet.decodeEngines, faults: { garbage: 1 } },
    ] as const;
    for (const [at, { pool, engines, faults }] of cases.entries()) {
      // Both workers fail one request, so whoever is chosen first fails; then one of them has a fault left.
      for (const engine of engines) await setFaults(engine, faults);
      const ids = promptOf(at + 10, 200);
      const stream = pool === "decode";
      const answer = await post(fleet, completion(ids, 5, { stream }));
      const records = await decisionsOf(fleet, answer.requestId);
      const mine = records.filter((record) => record.pool === pool);
      t.same(
        mine.map((record) => record.attempt),
        [1, 2],
        `${pool} ${JSON.stringify(faults)}`,
      );
      const [first, second] = mine.map((record) => record.winner?.workerId);
      t.not(first, second);
      t.match(
        mine[1]!.candidates.find(({ worker }) => worker.workerId === first)?.rejected,
        /failed this request before/,
      );
      // Each of the two failed once: the second attempt fails too, with the cause of its own.
      t.equal(answer.status, 502, answer.text);
      for (const engine of engines) await setFaults(engine, { failPrefill: 0, garbage: 0 });
      const next = await post(fleet, completion(ids, 5));
      t.equal(
        next.completion.choices[0]?.text,
        answerTo(ids, 5).join(""),
        "and the fleet serves on",
      );
    }
    const winnerOf = async (requestId: string) =>
      (await decisionsOf(fleet, requestId)).at(-2)?.winner?.workerId;
    const [only] = fleet.prefillEngines;
    await setFaults(only!, { failPrefill: 1 });
    for (let at = 0; at < 8; at++) {
      const ids = promptOf(at + 50, 300);
      const answer = await post(fleet, completion(ids, 5));
      t.equal(
        answer.status,
        200,
        `one fault is nobody's business: ${await winnerOf(answer.requestId)}`,
      );
      t.equal(answer.completion.choices[0]?.text, answerTo(ids, 5).join(""));
    }
    // A decode engine that failed may not have pulled: those blocks stay until their lease ends, since a
    // handle is never presented twice. Baton itself holds nothing.
    for (const pool of ["prefill", "decode"] as const) {
      const isFree = async () => (await workersOf(fleet, pool)).every((each) => each.leases === 0);
      await until(isFree, `no lease is left in the ${pool} pool`);
    }
  },
);

t.test("an engine's refusal reaches the client as it is and blames no worker", async (t) => {
  const fleet = await startFleet(t, { prefill: 1, decode: 1, speed: 20 });
  const answer = await post(
    fleet,
    completion([1, 2, 3], 2, { temperature: 0, max_tokens: 9_000_000 }),
  );
  t.equal(answer.status, 400, answer.text);
  const [worker] = await workersOf(fleet, "prefill");
  t.equal(worker?.state, "up");
  await comesToRest(t, fleet);
});

t.test(
  "killed engines: every request ends, and a restarted one is empty and another",
  async (t) => {
    const fleet = await startProcessFleet(t, { prefill: 2, decode: 2, speed: 4 });
    const [p0, p1] = fleet.prefillEngines;
    const [d0, d1] = fleet.decodeEngines;
    const ids = promptOf(1, 2_000);
    await post(fleet, completion(ids, 2));
    const hit = await until(async () => {
      const answer = await post(fleet, completion(ids, 2));
      const [record] = await decisionsOf(fleet, answer.requestId);
      return (winnerTerm(record!, "cached on gpu") ?? 0) > 0 ? record : null;
    }, "the prompt is known to be cached");
    const holder = [p0!, p1!].find((each) => each.workerId === hit.winner?.workerId)!;
    const life = (await workersOf(fleet, "prefill")).find(
      (each) => each.workerId === holder.workerId,
    )!;

    const load = Array.from({ length: 12 }, (_, at) =>
      post(fleet, completion(promptOf(100 + at, 6_000), 30)),
    );
    await until(async () => (await ledgerOf(holder)).requestsRunning > 0, "the holder works");
    await holder.kill();
    for (const answer of await Promise.all(load)) {
      t.ok([200, 502, 503].includes(answer.status), `an answer or a typed error: ${answer.status}`);
      if (answer.status !== 200) t.match(answer.error.code, /^BATON_/);
    }
    await until(async () => {
      const workers = await workersOf(fleet, "prefill");
      return (
        workers.every((each) => each.leases === 0) && workers.some((each) => each.state === "down")
      );
    }, "it is down and its leases are gone");

    await holder.restart();
    const reborn = await until(async () => {
      const worker = (await workersOf(fleet, "prefill")).find(
        (each) => each.workerId === holder.workerId,
      );
      return worker?.state === "up" ? worker : null;
    }, "it is back");
    t.not(reborn.incarnation, life.incarnation, "another life at the same address");
    const after = await post(fleet, completion(ids, 2));
    const [record] = await decisionsOf(fleet, after.requestId);
    const terms = record!.candidates.find(
      ({ worker }) => worker.workerId === holder.workerId,
    )!.terms;
    t.equal(terms.find((term) => term.name === "cached on gpu")?.value, 0, "it holds nothing");

    for (const engine of [p0!, p1!]) await engine.kill();
    const refused = await until(async () => {
      const answer = await post(fleet, completion([1, 2, 3], 1));
      return answer.status === 503 ? answer : null;
    }, "nobody is left to prefill");
    t.equal(refused.error.code, "BATON_NO_PREFILL_WORKER");
    t.ok(refused.headers.get("retry-after"));
    for (const engine of [p0!, p1!]) await engine.restart();
    await until(
      async () => (await post(fleet, completion([1, 2, 3], 1))).status === 200,
      "it serves again",
    );

    const stream = post(
      fleet,
      completion(promptOf(9, 500), 3_000, { ignore_eos: true, stream: true }),
    );
    const streaming = await until(async () => {
      for (const engine of [d0!, d1!])
        if ((await ledgerOf(engine)).requestsRunning > 0) return engine;
      return null;
    }, "a decode engine streams");
    await until(async () => (await ledgerOf(streaming)).requestsRunning > 0, "it runs");
    await streaming.kill();
    const broken = await stream;
    if (broken.status === 200 && !broken.text.includes("[DONE]")) {
      t.match(
        JSON.parse(eventsOf(broken.text).at(-1)!),
        { error: { code: /^BATON_/ } },
        "the stream says that it broke",
      );
    } else
      t.ok(
        [200, 502].includes(broken.status),
        "killed before its first byte: tried again, or a typed error",
      );
    t.notMatch(broken.text, /undefined/);
  },
);
