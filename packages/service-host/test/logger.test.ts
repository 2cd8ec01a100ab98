import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createLogger, maskText } from "@baton/service-host";
import fc from "fast-check";
import t from "tap";

function memory() {
  const lines: string[] = [];
  return { lines, destination: { write: (line: string) => lines.push(line) } };
}

function jsonLogger() {
  const { lines, destination } = memory();
  const logger = createLogger({ level: "debug", pretty: false, service: "frontend", destination });
  return { logger, records: () => lines.map((line) => JSON.parse(line)) };
}

t.test("a line is one JSON object with level, time, service, fields and message", (t) => {
  const { logger, records } = jsonLogger();
  logger.child({ workerId: "p0" }).info({ ttftMs: 12.5, promptTokens: 100 }, "request done");
  const [record] = records();
  t.match(record, {
    level: "info",
    service: "frontend",
    workerId: "p0",
    ttftMs: 12.5,
    promptTokens: 100,
    msg: "request done",
  });
  t.ok(Math.abs(Date.parse(record.time) - Date.now()) < 600_000, "time is ISO");
  t.end();
});

t.test("lines below the level are not written, and their fields are not even read", (t) => {
  const { lines, destination } = memory();
  const logger = createLogger({ level: "warn", pretty: false, service: "x", destination });
  const trap = {
    get field() {
      throw new Error("read");
    },
  };
  logger.debug(trap, "a");
  logger.info(trap, "b");
  logger.warn({}, "c");
  t.equal(lines.length, 1);
  t.end();
});

t.test("secrets never reach a line, wherever they are", (t) => {
  const word = fc.stringMatching(/^[A-Za-z0-9]{16,24}$/).map((text) => `Q${text}Z`);
  const wrap = (secret: string): Record<string, unknown>[] => [
    { authorization: secret },
    { headers: { Authorization: `Bearer ${secret}`, cookie: secret } },
    { apiKey: secret, api_key: secret, "x-api-key": secret },
    { engine: { token: secret, hfToken: secret, password: secret, clientSecret: secret } },
    { url: `nats://user:${secret}@bus:4222`, cause: `connect to http://a:${secret}@b/c failed` },
    { url: `nats://${secret}@bus:4222` },
    { text: `GET /v1?api_key=${secret}&token=${secret}` },
    { error: new Error(`401 for Bearer ${secret}`, { cause: new Error(`x?password=${secret}`) }) },
    { list: [`Authorization: Bearer ${secret}`], keys: new Map([["token", secret]]) },
    { key: `sk-${secret}`, body: `{"api_key": "${secret}"}` },
  ];
  fc.assert(
    fc.property(word, fc.boolean(), (secret, pretty) => {
      const { lines, destination } = memory();
      const logger = createLogger({ level: "info", pretty, service: "x", destination });
      for (const fields of wrap(secret)) {
        logger.info(fields, `told with Bearer ${secret}`);
        logger.child(fields).info({}, "told");
      }
      assert.equal(lines.length, 20);
      for (const line of lines) assert.ok(!line.includes(secret), line);
    }),
    { numRuns: 40 },
  );
  t.end();
});

t.test("what is no secret is kept as it is", (t) => {
  const { logger, records } = jsonLogger();
  const fields = {
    tokens: 5,
    promptTokens: 7,
    tokenIds: [1, 2],
    token: 3,
    url: "http://10.0.0.1:8000/v1?model=a",
    keysFile: "/etc/keys",
    monkey: "yes",
  };
  logger.info(fields, "basic facts about tokens");
  t.match(records()[0], { ...fields, msg: "basic facts about tokens" });
  t.equal(maskText("nats://bus:4222 and a@b"), "nats://bus:4222 and a@b");
  t.end();
});

t.test("nothing that is given to a logger makes it throw", (t) => {
  const loop: Record<string, unknown> = { name: "loop" };
  loop.self = loop;
  const hostile = {
    loop,
    big: 2n ** 63n,
    symbol: Symbol("s"),
    nothing: undefined,
    nan: Number.NaN,
    bytes: new Uint8Array(5),
    date: new Date(Number.NaN),
    call: () => 1,
    toJSON: () => {
      throw new Error("toJSON");
    },
    proxy: new Proxy({}, { ownKeys: () => [][0]! }),
    get thrower(): never {
      throw new Error("getter");
    },
    level: "fake",
    msg: "fake",
    time: 0,
    long: "x".repeat(100_000),
    many: Array.from({ length: 1_000 }, (_, index) => index),
  };
  const { logger, records } = jsonLogger();
  logger.error(hostile, "odd");
  const [record] = records();
  t.match(record, {
    level: "error",
    level_: "fake",
    msg: "odd",
    msg_: "fake",
    big: "9223372036854775808",
    nan: "NaN",
    bytes: "(5 bytes)",
    thrower: "(unreadable)",
    proxy: "(unreadable)",
  });
  t.ok(JSON.stringify(record).length < 20_000, "a line has a cap");
  fc.assert(
    fc.property(
      fc.object({
        withBigInt: true,
        withDate: true,
        withMap: true,
        withSet: true,
        withTypedArray: true,
        withNullPrototype: true,
      }),
      (fields) => {
        logger.child(fields).info(fields, "any");
        assert.equal(records().at(-1).msg, "any");
      },
    ),
    { numRuns: 50 },
  );
  const broken = createLogger({
    level: "info",
    pretty: true,
    service: "x",
    destination: {
      write: () => {
        throw new Error("full");
      },
    },
  });
  broken.info({}, "lost");
  t.end();
});

t.test("the form for people is one line, and stacks follow", (t) => {
  const { lines, destination } = memory();
  const logger = createLogger({ level: "info", pretty: true, service: "frontend", destination });
  logger.warn({ workerId: "p0", reason: "no answer", count: 3, list: [1] }, "worker lost");
  t.match(
    lines[0],
    /^\d\d:\d\d:\d\d\.\d{3} WARN {2}frontend worker lost workerId=p0 reason="no answer" count=3 list=\[1\]\n$/,
  );
  logger.error({ error: new TypeError("bad") }, "crash");
  t.match(
    lines[1],
    /ERROR frontend crash error=\{"name":"TypeError","message":"bad"\}\n {4}TypeError: bad\n {4} {4}at /,
  );
  logger.info(
    { id: "a\u001b[2Jb", error: new Error("x\u001b]0;t\u0007") },
    "told\u001b[31m\nINFO forged",
  );
  t.equal(
    lines[2]!.split("\n").filter((line) => line.includes("INFO")).length,
    1,
    "no forged line",
  );
  t.notOk(lines[2]!.includes("\u001b"), "control characters do not reach the terminal");
  const colour = memory();
  createLogger({
    level: "info",
    pretty: true,
    service: "x",
    colour: true,
    destination: colour.destination,
  }).info({}, "a");
  t.ok(colour.lines[0]!.includes("\u001b[32mINFO"));
  t.end();
});

t.test("flush waits until the lines are in the file", async (t) => {
  const file = join(t.testdir({}), "log");
  const descriptor = openSync(file, "a");
  t.teardown(() => closeSync(descriptor));
  const logger = createLogger({
    level: "info",
    pretty: false,
    service: "x",
    destination: descriptor,
  });
  for (let index = 0; index < 500; index++) logger.info({ index, text: "x".repeat(200) }, "line");
  await logger.flush();
  const count = () => readFileSync(file, "utf8").split("\n").length - 1;
  t.equal(count(), 500);
  await logger.flush();
  for (let index = 0; index < 500; index++) logger.info({ index }, "line");
  logger.flushNow();
  await logger.flush();
  t.equal(count(), 1_000);
});

t.test("a reader that goes away stops the log and not the process", async (t) => {
  const code = `
    import { createLogger } from "@baton/service-host";
    const logger = createLogger({ level: "info", pretty: false, service: "x" });
    logger.info({}, "first");
    process.stdin.on("end", async () => {
      for (let index = 0; index < 100; index++) { logger.info({ index }, "more"); await logger.flush(); }
      logger.flushNow();
      process.stderr.write("alive");
    }).resume();
  `;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], {
    cwd: import.meta.dirname,
  });
  t.teardown(() => child.kill("SIGKILL"));
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (text) => {
    errors += text;
  });
  child.stdout.once("data", () => {
    child.stdout.destroy();
    child.stdin.end();
  });
  const exit = await new Promise((resolve) => child.on("close", resolve));
  t.equal(exit, 0);
  t.equal(errors, "alive");
});
