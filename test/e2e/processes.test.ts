import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectNatsBus, renderNatsAuthorization } from "@baton/bus";
import { startNatsServer } from "@baton/bus/testing";
import { natsUserOf } from "@baton/service-wiring";
import t, { type Test } from "tap";
import { answerTo, completion, eventsOf, post, promptOf } from "./support/answers.ts";
import { Command, isAlive } from "./support/command.ts";
import { type Engine, ledgerOf, model, startEngine } from "./support/engine.ts";
import { untilReady } from "./support/fleet.ts";
import { until } from "./support/until.ts";

function folderOf(t: Test): string {
  const folder = mkdtempSync(join(tmpdir(), "baton e2e "));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function startLaptop(
  t: Test,
  ...args: string[]
): Promise<{ command: Command; url: string; pids: number[] }> {
  const command = new Command(t, ["start", "--port", "0", ...args]);
  const [, url] = await command.said(/^frontend +(http:\S+)/m);
  await untilReady({ url: url! });
  const pids = [...command.stdout.matchAll(/pid (\d+)/g)].map(([, pid]) => Number(pid));
  return { command, url: url!, pids };
}

t.test("laptop mode drains on Ctrl-C and leaves no process, also when it is killed", async (t) => {
  const { command, url, pids } = await startLaptop(t, "--speed", "4");
  t.equal(pids.length, 4);
  const streaming = fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(completion(promptOf(1, 500), 5_000, { ignore_eos: true, stream: true })),
  });
  const response = await streaming;
  t.equal(response.status, 200);
  const reader = response.body!.getReader();
  await reader.read();
  command.child.kill("SIGINT");
  const endMs = performance.now() + 5_000;
  t.equal(await command.ended(), 0);
  t.ok(performance.now() < endMs, "within 5 s, a running stream included");
  await reader.cancel().catch(() => {});
  await until(() => !pids.some(isAlive), "no engine is left");

  const killed = await startLaptop(t);
  killed.command.child.kill("SIGKILL");
  await until(() => !killed.pids.some(isAlive), "no engine outlives its killed parent");
});

t.test("own engines: it says what it found and serves, split or aggregated", async (t) => {
  const args = ["--speed", "20"];
  const [p, d, quiet] = await Promise.all([
    startEngine(t, { workerId: "p", role: "prefill", args }),
    startEngine(t, { workerId: "d", role: "decode", args }),
    startEngine(t, { workerId: "q", role: "both", args: [...args, "--no-kv-events"] }),
  ]);
  const ids = promptOf(2, 200);
  const split = await startLaptop(t, "--prefill-url", p.url, "--decode-url", d.url);
  t.match(split.command.stdout, /p0 +prefill .*version 0\.32\.0 +model sim-model +block 16/);
  t.match(split.command.stdout, /KV events from tcp:.*with replay/);
  const answer = await post(split, completion(ids, 4));
  t.equal(answer.completion.choices[0]?.text, answerTo(ids, 4).join(""));
  t.equal((await ledgerOf(p)).handlesIssued, 1, "over both engines");

  const whole = await startLaptop(t, "--prefill-url", quiet.url, "--decode-url", quiet.url);
  t.match(whole.command.stdout, /b0 +both/);
  t.match(whole.command.stdout, /no KV events: placed by load alone/);
  t.equal(
    (await post(whole, completion(ids, 4))).completion.choices[0]?.text,
    answerTo(ids, 4).join(""),
  );
});

t.test(
  "a replay checks every answer, writes figures and decisions, and reads broken rows first",
  async (t) => {
    const folder = folderOf(t);
    const [json, decisions, broken] = ["r.json", "d.ndjson", "broken.jsonl"].map((name) =>
      join(folder, name),
    );
    const run = new Command(t, [
      "start",
      "--replay",
      "--limit",
      "20",
      "--speed",
      "50",
      "--json",
      json!,
      "--decisions",
      decisions!,
    ]);
    t.equal(await run.ended(), 0, run.stderr);
    const report = JSON.parse(readFileSync(json!, "utf8"));
    t.match(report, { requests: 20, ok: 20, errors: {} });
    for (const key of ["ttftMs", "itlMs", "e2eMs"]) t.type(report[key].p99, "number", key);
    for (const key of [
      "hitRatio",
      "idealHitRatio",
      "prefillsPerSharedBlock",
      "workerTokensMaxOverMean",
      "bytesMoved",
      "wallSeconds",
    ]) {
      t.type(report[key], "number", key);
    }
    t.ok(report.hitRatio <= report.idealHitRatio + 1e-9);
    const records = readFileSync(decisions!, "utf8")
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    t.equal(records.length, 40, "two decisions a request");
    t.ok(records.every((record) => record.winner !== null && record.candidates.length === 2));

    writeFileSync(
      broken!,
      '{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[1]}\n{"timestamp":0,"input_length":-1,"output_length":1,"hash_ids":[1]}\n',
    );
    const refused = new Command(t, ["start", "--replay", broken!]);
    t.equal(await refused.ended(), 65, refused.stderr);
    t.match(refused.stderr, /broken\.jsonl:2.*input_length/);
    t.notMatch(refused.stderr, /simulated/, "nothing was started");
  },
);

t.test(
  "what an operator gets wrong ends in one clear message and the right exit code",
  async (t) => {
    const folder = folderOf(t);
    const bad = join(folder, "frontend.yaml");
    writeFileSync(bad, "bus:\n  url: http://x\nhttp:\n  prt: 1\n  port: 70000\n");
    const check = new Command(t, ["frontend", "--config", bad]);
    t.equal(await check.ended(), 64);
    t.match(check.stderr, /frontend\.yaml:2:\d+.*bus\.url/);
    t.match(check.stderr, /frontend\.yaml:4:\d+.*prt.*port/s, "with what was meant");
    t.match(check.stderr, /frontend\.yaml:5:\d+.*http\.port/);
    const unreachable = new Command(t, [
      "frontend",
      "--set",
      "bus.url=nats://127.0.0.1:1",
      "--set",
      "bus.connectDeadlineMs=200",
      "--set",
      "http.port=0",
    ]);
    t.equal(await unreachable.ended(), 69);
    t.match(unreachable.stderr, /BATON_BUS_UNREACHABLE.*127\.0\.0\.1:1/);

    const html = createServer((_, response) => response.end("<html>it works</html>"));
    await new Promise<void>((resolve) => html.listen(0, "127.0.0.1", resolve));
    t.teardown(() => html.close());
    const { port } = html.address() as AddressInfo;
    const taken = new Command(t, ["start", "--port", String(port)]);
    t.equal(await taken.ended(), 69);
    t.match(taken.stderr, /BATON_PORT_IN_USE/);
    const garbage = new Command(t, [
      "start",
      "--prefill-url",
      `http://127.0.0.1:${port}`,
      "--decode-url",
      `http://127.0.0.1:${port}/`,
    ]);
    t.not(await garbage.ended(), 0);
    t.match(garbage.stderr, /BATON_/);
    const usage = new Command(t, ["start", "--prefil", "2"]);
    t.equal(await usage.ended(), 64);
    t.match(usage.stderr, /prefil/);
    for (const each of [check, unreachable, taken, garbage, usage])
      t.notMatch(each.stderr, /^\s+at /m, "no stack");
  },
);

t.test("three processes on a real NATS server, each with its own user", async (t) => {
  t.setTimeout(120_000);
  const services = ["frontend", "prefill-scheduler", "decode-scheduler"] as const;
  const password = (service: string) => `secret-of-${service}`;
  const users = services.map((service) =>
    natsUserOf(service, { kind: "password", password: password(service) }),
  );
  const nats = await startNatsServer({ config: renderNatsAuthorization(users) });
  if (nats === null) return;
  t.teardown(() => nats.stop());
  const folder = folderOf(t);
  const args = ["--speed", "20"];
  const engines: Engine[] = await Promise.all(
    (["prefill", "prefill", "decode", "decode"] as const).map((role, at) =>
      startEngine(t, { workerId: `${role[0]}${at}`, role, args }),
    ),
  );
  const commands = new Map<string, Command>();
  for (const service of services) {
    const passwordFile = join(folder, `${service}.password`);
    writeFileSync(passwordFile, `${password(service)}\n`, { mode: 0o600 });
    const role = service === "prefill-scheduler" ? "prefill" : "decode";
    const workers = engines
      .filter((engine) => engine.role === role)
      .map(({ workerId, url }) => ({ id: workerId, url }));
    const file = join(folder, `${service}.yaml`);
    const config = {
      bus: { url: nats.url, user: service, passwordFile },
      ...(service === "frontend" ? { http: { port: 0 } } : { model, workers, admin: { port: 0 } }),
    };
    writeFileSync(file, JSON.stringify(config)); // JSON is YAML
    commands.set(service, new Command(t, [service, "--config", file]));
  }
  const frontend = commands.get("frontend")!;
  const [, url] = await frontend.said(/"url":"(http:[^"]+)","msg":"frontend is up"/);
  await untilReady({ url: url! });
  t.notMatch(
    [...commands.values()].map((each) => each.stdout).join(""),
    /secret-of/,
    "no secret is logged",
  );
  const ids = promptOf(5, 400);
  const answer = await post({ url: url! }, completion(ids, 6));
  t.equal(answer.completion.choices[0]?.text, answerTo(ids, 6).join(""));

  const options = [
    "--limit",
    "24",
    "--speed",
    "40",
    "--concurrency",
    "1",
    "--simulated",
    "--model",
    model,
  ];
  const urls = engines.flatMap((engine) => [`--${engine.role}-url`, engine.url]);
  const hitRatio = async (file: string, command: Command) => {
    t.equal(await command.ended(), 0, command.stderr);
    return (JSON.parse(readFileSync(file, "utf8")) as { hitRatio: number }).hitRatio;
  };
  const three = join(folder, "three.json");
  const one = join(folder, "one.json");
  const threeRatio = await hitRatio(
    three,
    new Command(t, ["replay", "--url", url!, ...options, ...urls, "--json", three]),
  );
  const oneRatio = await hitRatio(
    one,
    new Command(t, [
      "start",
      "--replay",
      "--limit",
      "24",
      "--speed",
      "40",
      "--concurrency",
      "1",
      "--json",
      one,
    ]),
  );
  t.ok(
    Math.abs(threeRatio - oneRatio) <= 0.01,
    `three processes ${threeRatio}, one process ${oneRatio}`,
  );

  const intruder = await connectNatsBus({
    url: nats.url,
    name: "intruder",
    inboxPrefix: "_INBOX_frontend",
    auth: { kind: "password", user: "frontend", password: password("frontend") },
    onError: () => {},
  });
  t.ok(intruder.ok);
  if (intruder.ok) {
    const subject = `baton.v1.${model}.prefill.fleet`;
    await until(() => {
      const sent = intruder.value.publish(subject, new Uint8Array([1]));
      return !sent.ok && sent.error.code === "BATON_BUS_FORBIDDEN";
    }, "a frontend cannot publish as a scheduler");
    await intruder.value.drain();
  }

  const stream = fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(completion(promptOf(6, 300), 1_500, { ignore_eos: true, stream: true })),
  });
  const streaming = await stream;
  await nats.restart();
  const text = await streaming.text();
  t.equal(eventsOf(text).at(-1), "[DONE]", "a running stream does not need the bus");
  await until(
    async () => (await post({ url: url! }, completion(ids, 2))).status === 200,
    "the service is back",
  );
  for (const [service, command] of commands) {
    command.child.kill("SIGTERM");
    t.equal(await command.ended(), 0, service);
  }
});
