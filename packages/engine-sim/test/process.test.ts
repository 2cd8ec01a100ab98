import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import t from "tap";
import { keepForRemote, prompt } from "./sim-under-test.ts";

const main = fileURLToPath(new URL("../src/main.ts", import.meta.url));

interface Ready {
  readonly url: string;
  readonly pid: number;
  readonly [name: string]: unknown;
}

interface Child {
  readonly process: ChildProcess;
  readonly ready: Promise<Ready>;
  readonly exit: Promise<number | null>;
  readonly output: () => { stdout: string; stderr: string };
}

function watch(t: { teardown(end: () => void): unknown }, child: ChildProcess): Child {
  const output = { stdout: "", stderr: "" };
  t.teardown(() => child.kill("SIGKILL"));
  child.stderr?.on("data", (bytes) => {
    output.stderr += bytes;
  });
  const ready = new Promise<Ready>((resolve) => {
    child.stdout?.on("data", (bytes) => {
      output.stdout += bytes;
      if (/^\{.*\n/.test(output.stdout)) resolve(JSON.parse(output.stdout.split("\n", 1)[0]!));
    });
  });
  // Behind an IPC channel that this side closed, `close` never comes.
  const end = child.channel === undefined || child.channel === null ? "close" : "exit";
  const exit = once(child, end).then(([code]) => code as number | null);
  return { process: child, ready, exit, output: () => output };
}

function start(t: { teardown(end: () => void): unknown }, ...argv: string[]): Child {
  return watch(t, spawn(process.execPath, [main, ...argv], { stdio: "pipe" }));
}

function post(url: string, body: object): Promise<Response> {
  return fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

t.test("one line says where everything listens, and SIGTERM lets a stream finish", async (t) => {
  const argv = ["--role", "decode", "--model", "m", "--engine-id", "e", "--no-kv-events"];
  const child = start(t, ...argv, "--speed", "20");
  const ready = await child.ready;
  t.match(ready, {
    ready: true,
    url: /^http:\/\/127\.0\.0\.1:\d+$/,
    role: "decode",
    engineId: "e",
    model: "m",
    kvEvents: null,
    kvReplay: null,
    sideChannelPort: Number,
    pid: child.process.pid,
  });
  const taken = start(t, "--port", new URL(ready.url).port, "--no-kv-events");
  t.equal(await taken.exit, 1);
  t.match(taken.output().stderr, "EADDRINUSE");
  const answer = await post(ready.url, { prompt: [1, 2], max_tokens: 300, stream: true });
  child.process.kill("SIGTERM");
  const text = await answer.text();
  t.equal(text.match(/"text":/g)?.length, 300);
  t.ok(text.endsWith("data: [DONE]\n\n"));
  t.equal(await child.exit, 0);
  t.equal(child.output().stdout.trim().split("\n").length, 1);
});

t.test("bad options are all named and end with 64, help with 0", async (t) => {
  const bad = start(t, "--speed", "fast", "--role", "x", "--block-size", "0", "--profile", "p");
  t.equal(await bad.exit, 64);
  for (const name of ["--speed", "--role", "--block-size", "--profile"]) {
    t.match(bad.output().stderr, name);
  }
  t.equal(bad.output().stdout, "");
  const unknown = start(t, "--nonsense");
  t.equal(await unknown.exit, 64);
  t.match(unknown.output().stderr, "--nonsense");
  const help = start(t, "--help");
  t.equal(await help.exit, 0);
  for (const name of ["--lease-ms", "--die-with-parent", "qwen3-8b-bf16-tp1"]) {
    t.match(help.output().stdout, name);
  }
});

t.test("it ends with its parent: by its standard input or its IPC channel", async (t) => {
  const argv = ["--die-with-parent", "--no-kv-events"];
  const piped = start(t, ...argv);
  const forked = watch(t, fork(main, argv, { stdio: ["ignore", "pipe", "pipe", "ipc"] }));
  await Promise.all([piped.ready, forked.ready]);
  piped.process.stdin?.end();
  forked.process.disconnect();
  t.same(await Promise.all([piped.exit, forked.exit]), [0, 0]);
});

t.test("a fatal handle is answered, logged and ends the process with 1", async (t) => {
  const argv = ["--no-kv-events", "--speed", "100"];
  const [P, D] = [start(t, ...argv), start(t, ...argv)];
  const [{ url: prefillUrl }, { url: decodeUrl }] = await Promise.all([P.ready, D.ready]);
  const body = { prompt: prompt(1, 60), max_tokens: 1, kv_transfer_params: keepForRemote };
  const leg = (await (await post(prefillUrl, body)).json()) as {
    kv_transfer_params: { remote_block_ids: number[][] };
  };
  const handle = { ...leg.kv_transfer_params, remote_block_ids: [[1]] };
  const answer = await post(decodeUrl, { ...body, kv_transfer_params: handle });
  t.equal(answer.status, 500);
  t.match(await answer.text(), "EngineCore encountered an issue");
  t.equal(await D.exit, 1);
  t.match(D.output().stderr, "1 block ids in a handle whose prompt needs 4 more blocks");
  await t.rejects(post(decodeUrl, body));
  P.process.kill("SIGTERM");
  t.equal(await P.exit, 0);
});
