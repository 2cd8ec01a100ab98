import { request as httpRequest } from "node:http";
import { expectedTokens } from "@baton/engine-model";
import { hashBlocks, namespaceRoot } from "@baton/kv-blocks";
import t from "tap";
import {
  type Answer,
  keepForRemote,
  prompt,
  type SimUnderTest,
  startSim,
  until,
} from "./sim-under-test.ts";

type Handle = Record<string, unknown> & { remote_block_ids: number[][] };

const quiet = ["--no-kv-events", "--speed", "50", "--handshake-timeout-ms", "100"];

async function pair(
  t: Parameters<typeof startSim>[0],
  ...argv: string[]
): Promise<{ P: SimUnderTest; D: SimUnderTest }> {
  const P = await startSim(t, "--role", "prefill", ...quiet, ...argv);
  const D = await startSim(t, "--role", "decode", ...quiet, ...argv);
  return { P, D };
}

async function prefill(P: SimUnderTest, ids: number[]): Promise<Handle> {
  const answer = await P.post("/v1/completions", {
    prompt: ids,
    max_tokens: 1,
    kv_transfer_params: keepForRemote,
  });
  if (answer.status !== 200) throw new Error(answer.text);
  return answer.json.kv_transfer_params;
}

function decode(D: SimUnderTest, ids: number[], handle: unknown, more = {}): Promise<Answer> {
  return D.post("/v1/completions", {
    prompt: ids,
    max_tokens: 6,
    kv_transfer_params: handle,
    ...more,
  });
}

function right(ids: number[], count = 6): string {
  return expectedTokens(Uint32Array.from(ids), count).texts.join("");
}

function textOf(answer: Answer): string {
  return answer.json.choices[0].text;
}

/** A POST whose connection the test holds and can close. */
function hangUp(sim: SimUnderTest, body: object): { close: () => void; bytes: () => number } {
  let bytes = 0;
  const call = httpRequest(`${sim.url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
  });
  call.on("error", () => {});
  call.on("response", (response) => {
    response.on("error", () => {});
    response.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
    });
  });
  call.end(JSON.stringify(body));
  return { close: () => call.destroy(), bytes: () => bytes };
}

const ids = prompt(1, 97);

t.test(
  "a pull gives exactly the expected tokens, passes usage on and frees the prefill side",
  async (t) => {
    const { P, D } = await pair(t);
    const handle = await prefill(P, ids);
    t.match(await P.ledger(), { blocksHeld: 7, blocksUsed: 7, handlesIssued: 1 });
    const again = await prefill(P, ids);
    t.equal(again["remote_prefill_cached_tokens"], 96);
    const answer = await decode(D, ids, again);
    t.equal(textOf(answer), right(ids));
    t.equal(answer.json.usage.prompt_tokens_details.cached_tokens, 96);
    t.equal(textOf(await decode(D, ids, handle)), right(ids));
    await until("both exports freed", async () => (await P.ledger())["blocksUsed"] === 0);
    const ledger = await D.ledger();
    t.match(ledger, { tokensComputed: 0, tokensTransferred: 98, tokensCached: 96, blocksUsed: 0 });
    t.equal(ledger["bytesTransferred"], 8 * 16 * 262_144);
    t.match(ledger.handlesSeen, [{ times: 1 }, { times: 1 }]);
    const { remote_prefill_cached_tokens: _, ...old } = await prefill(P, ids);
    const counted = await decode(D, ids, old);
    t.equal(counted.json.usage.prompt_tokens_details.cached_tokens, 97, "without the figure: all");
  },
);

t.test("streams and chats through a pair give the tokens of the whole prompt", async (t) => {
  const { P, D } = await pair(t);
  const messages = [{ role: "user", content: "Tell me of pulls. ".repeat(20) }];
  const leg = { messages, max_completion_tokens: 1, kv_transfer_params: keepForRemote };
  const first = await P.post("/v1/chat/completions", { ...leg, return_token_ids: true });
  const promptIds: number[] = first.json.prompt_token_ids;
  const answer = await D.post("/v1/chat/completions", {
    messages,
    max_completion_tokens: 9,
    stream: true,
    kv_transfer_params: first.json.kv_transfer_params,
  });
  const deltas = [...answer.text.matchAll(/"content":"( [^"]*)"/g)].map((match) => match[1]);
  t.equal(deltas.join(""), right(promptIds, 9));
  t.notMatch(answer.text, "kv_transfer_params");
});

t.test("wrong, used and surplus handles give wrong tokens with status 200", async (t) => {
  const { P, D } = await pair(t, "--cache-tokens", "320");
  const other = await prefill(P, prompt(2, 97));
  const swapped = await decode(D, ids, other);
  t.equal(swapped.status, 200);
  t.not(textOf(swapped), right(ids));
  const poisoned = await D.post("/v1/completions", { prompt: ids, max_tokens: 6 });
  t.not(textOf(poisoned), right(ids), "the wrong blocks are cached under the prompt's hashes");
  const handle = await prefill(P, ids);
  const [blocks] = handle.remote_block_ids as [number[]];
  const fresh = await startSim(t, ...quiet);
  const surplus = await decode(fresh, ids, { ...handle, remote_block_ids: [[...blocks, 1]] });
  t.equal(surplus.status, 200);
  t.not(textOf(surplus), right(ids), "the last ids are taken");
  await P.post("/v1/completions", { prompt: prompt(3, 300), max_tokens: 1 });
  const late = await startSim(t, ...quiet);
  const used = await decode(late, ids, handle);
  t.equal(used.status, 200);
  t.not(textOf(used), right(ids), "a used handle reads what lies there now");
  await until("a late notice", async () => (await P.ledger())["lateNotices"] === 1);
  t.match((await P.get("/metrics")).text, /notifications_after_expiry_total\{.*\} 1\.0/);
});

t.test("a handle that leads nowhere fails the request and nothing else", async (t) => {
  const { P, D } = await pair(t);
  const handle = await prefill(P, ids);
  const cases: [string, Partial<Handle>][] = [
    ["unreachable", { remote_port: 1, remote_engine_id: "nobody" }],
    ["another engine", { remote_engine_id: "nobody" }],
    ["out of range", { remote_block_ids: [[1, 2, 3, 4, 5, 6, 90_001]] }],
    ["no host", { remote_host: null }],
  ];
  for (const [name, change] of cases) {
    const answer = await decode(D, ids, { ...handle, ...change });
    t.equal(answer.status, 500, name);
    t.match(answer.json.error, { message: "Internal server error", type: "InternalServerError" });
  }
  const streamed = await decode(D, ids, { ...handle, remote_port: 1 }, { stream: true });
  t.equal(streamed.status, 200);
  t.match(streamed.text, /^data: \{"error":.*\n\ndata: \[DONE\]\n\n$/);
  t.match(await P.ledger(), { blocksHeld: 7 }, "the export waits for its lease");
  t.match(await D.ledger(), { blocksUsed: 0, requestsWaiting: 0 });
  t.equal(textOf(await decode(D, ids, handle)), right(ids));
});

t.test("a handle that kills a real decode engine ends this one", async (t) => {
  const { P } = await pair(t);
  const handle = await prefill(P, ids);
  const [blocks] = handle.remote_block_ids as [number[]];
  for (const remote_block_ids of [[blocks.slice(0, 3)], null]) {
    const D = await startSim(t, ...quiet);
    const answer = await decode(D, ids, { ...handle, remote_block_ids });
    t.equal(answer.status, 500);
    t.match(answer.json.error.message, /^EngineCore encountered an issue/);
    t.equal(D.deaths.length, 1);
  }
  const D = await startSim(t, ...quiet);
  const parked = hangUp(D, {
    prompt: ids,
    max_tokens: 2,
    kv_transfer_params: { ...handle, remote_request_id: undefined },
  });
  await until("the request is parked", async () => (await D.ledger())["requestsWaiting"] === 1);
  parked.close();
  await until("its disconnect kills", () => D.deaths.length === 1);
  const hardy = await startSim(t, ...quiet, "--survive-bad-handles");
  const refused = await decode(hardy, ids, { ...handle, remote_block_ids: null });
  t.equal(refused.status, 500);
  t.same(hardy.deaths, []);
  t.equal(textOf(await decode(hardy, ids, handle)), right(ids));
});

t.test("leases end exports, and heartbeats of a waiting decode engine prolong them", async (t) => {
  const P = await startSim(t, ...quiet, "--lease-ms", "150");
  await prefill(P, ids);
  t.match(await P.ledger(), { blocksHeld: 7 });
  await until("expired", async () => (await P.ledger())["handlesExpired"] === 1);
  t.match(await P.ledger(), { blocksHeld: 0, blocksUsed: 0 });
  t.match((await P.get("/metrics")).text, /nixl_num_kv_expired_reqs_total\{.*\} 1\.0/);
  // 29 MB over a link of 80 MB/s take longer than two leases.
  const D = await startSim(
    t,
    "--no-kv-events",
    "--lease-ms",
    "150",
    "--link-bytes-per-second",
    "8e7",
  );
  const handle = await prefill(P, ids);
  t.equal(textOf(await decode(D, ids, handle)), right(ids));
  t.match(await P.ledger(), { handlesExpired: 1, lateNotices: 0, blocksUsed: 0 });
});

t.test("a refused or abandoned decode leg frees the prefill engine at once", async (t) => {
  const { P } = await pair(t);
  const D = await startSim(t, "--no-kv-events", "--link-bytes-per-second", "1e6");
  const freed = (what: string): Promise<void> =>
    until(what, async () => (await P.ledger())["blocksHeld"] === 0);
  const refused = await decode(D, ids, await prefill(P, ids), { max_tokens: 10_000_000 });
  t.equal(refused.status, 400);
  await freed("after a 400");
  const handle = await prefill(P, ids);
  const call = hangUp(D, { prompt: ids, max_tokens: 5, kv_transfer_params: handle });
  await until("the pull runs", async () => (await D.ledger())["requestsWaiting"] === 1);
  call.close();
  await freed("after a disconnect in the middle of the pull");
  t.match(await D.ledger(), { blocksUsed: 0, requestsWaiting: 0, aborts: 1 });
  t.match(await P.ledger(), { handlesExpired: 0 });
});

t.test(
  "a client that goes away stops its request, and a prefill leg then exports nothing",
  async (t) => {
    const sim = await startSim(t, "--no-kv-events", "--speed", "20");
    const stream = hangUp(sim, { prompt: ids, max_tokens: 30_000, stream: true });
    await until("tokens flow", () => stream.bytes() > 1000);
    stream.close();
    await until("stopped", async () => (await sim.ledger())["blocksUsed"] === 0);
    const leg = hangUp(sim, {
      prompt: prompt(4, 20_000),
      max_tokens: 1,
      kv_transfer_params: keepForRemote,
    });
    await until("prefill runs", async () => (await sim.ledger())["requestsRunning"] === 1);
    leg.close();
    await until("prefill stopped", async () => (await sim.ledger())["requestsRunning"] === 0);
    t.match(await sim.ledger(), { blocksHeld: 0, handlesIssued: 0, aborts: 2, finished: 0 });
    t.match((await sim.get("/metrics")).text, /request_success_total\{.*abort.*\} 2\.0/);
  },
);

t.test(
  "a prefill engine that dies fails its pulls at once, and a new one serves again",
  async (t) => {
    const first = await startSim(t, ...quiet, "--handshake-timeout-ms", "60000");
    const D = await startSim(t, ...quiet, "--handshake-timeout-ms", "60000");
    t.equal(textOf(await decode(D, ids, await prefill(first, ids))), right(ids));
    const handle = await prefill(first, ids);
    const port = String(first.sideChannelPort);
    await first.stop(0);
    t.equal((await decode(D, prompt(5, 97), handle)).status, 500);
    const second = await startSim(t, ...quiet, "--side-channel-port", port);
    t.equal((await decode(D, prompt(5, 97), handle)).status, 500, "the dead engine's handle");
    t.equal(textOf(await decode(D, ids, await prefill(second, ids))), right(ids));
  },
);

t.test("the ledger counts each computed block once under Baton's own hash", async (t) => {
  const { P, D } = await pair(t);
  const handle = await prefill(P, ids);
  await prefill(P, ids);
  await decode(D, ids, handle);
  const hashes = hashBlocks(
    Uint32Array.from(ids),
    16,
    namespaceRoot({ model: "sim-model", loraName: null, cacheSalt: null }),
  );
  const records = async (sim: SimUnderTest): Promise<string[]> => {
    const bytes = Buffer.from(
      await (await fetch(`${sim.url}/sim/ledger/computed-blocks`)).arrayBuffer(),
    );
    return Array.from(
      { length: bytes.length / 12 },
      (_, at) => `${bytes.readBigUInt64LE(at * 12)} ${bytes.readUInt32LE(at * 12 + 8)}`,
    ).sort();
  };
  const expected = Array.from(
    { length: 6 },
    (_, at) => `${(BigInt(hashes[2 * at + 1]!) << 32n) | BigInt(hashes[2 * at]!)} 1`,
  ).sort();
  t.same(await records(P), expected);
  t.same(await records(D), []);
});

t.test("faults hit as many requests as they were set for", async (t) => {
  const sim = await startSim(t, ...quiet);
  const ask = (more = {}): Promise<Answer> =>
    sim.post("/v1/completions", { prompt: ids, max_tokens: 2, ...more });
  await sim.post("/sim/faults", { failPrefill: 1, garbage: 1 });
  t.equal((await ask()).status, 500);
  const garbage = await ask();
  t.equal(garbage.status, 200);
  t.equal(garbage.json, null);
  t.equal(textOf(await ask()), right(ids, 2));
  t.equal((await sim.ledger())["blocksCached"], 6);
  await sim.post("/sim/faults", { clearCacheSilently: true });
  t.equal((await sim.ledger())["blocksCached"], 0);
  t.equal((await ask()).json.usage.prompt_tokens_details.cached_tokens, 0);
  t.equal((await sim.post("/sim/faults", { nonsense: 1 })).status, 400);
  t.equal((await sim.post("/sim/faults", { hangMs: "x" })).status, 400);
  await sim.post("/sim/faults", { hangMs: 60_000 });
  const held = hangUp(sim, { prompt: ids, max_tokens: 2 });
  const seen = async (): Promise<number> => (await sim.ledger()).lastBodies.length;
  await until("the held request is seen", async () => (await seen()) === 5);
  t.match(await sim.ledger(), { requestsRunning: 0, requestsWaiting: 0 });
  held.close();
  await sim.post("/sim/faults", { hangMs: 0, cutStreamAfterTokens: 3 });
  await t.rejects(ask({ stream: true, max_tokens: 50 }));
  await sim.post("/sim/faults", { ignoreHandles: true });
  const ignored = await decode(sim, ids, { do_remote_prefill: true });
  t.equal(textOf(ignored), right(ids));
  await sim.post("/sim/faults", { dieOnNext: true });
  await Promise.race([ask(), until("death", () => sim.deaths.length === 1)]).catch(() => {});
  t.equal(sim.deaths.length, 1);
});
