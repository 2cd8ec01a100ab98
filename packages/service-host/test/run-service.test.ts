import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { join } from "node:path";
import { batonError, errorCatalogue } from "@baton/domain";
import { fail, ok } from "@baton/kit";
import { ManualClock } from "@baton/kit/testing";
import { ManualTimers, MemoryLogger } from "@baton/ports/testing";
import {
  exitCodeOf,
  type HostLogger,
  type HostProcess,
  hostSections,
  loadConfig,
  type RunningService,
  runService,
  type ServiceContext,
  systemClock,
  systemTimers,
} from "@baton/service-host";
import t, { type Test } from "tap";
import { z } from "zod";

const schema = z.strictObject({ ...hostSections({ adminPort: 0 }) });
type Config = z.output<typeof schema>;

/** A process that only takes notes. */
function fakeProcess(hasChannel = false) {
  const notes = { exits: [] as number[], errors: "", unheld: [] as (() => void)[], exitCode: -1 };
  const stdin = Object.assign(new EventEmitter(), { resume() {}, destroy() {} });
  const host: HostProcess = {
    events: new EventEmitter(),
    hasChannel,
    stdin: () => stdin,
    writeError(text) {
      notes.errors += text;
    },
    exit: (code) => notes.exits.push(code),
    setExitCode(code) {
      notes.exitCode = code;
    },
    afterUnheld: (_, callback) => notes.unheld.push(callback),
    activeResources: () => ["TCPSocketWrap"],
  };
  return { host, stdin, notes };
}

function memoryLogger(): HostLogger & { messages(): string[] } {
  const logger = new MemoryLogger();
  return Object.assign(logger, {
    flush: async () => {},
    flushNow() {},
    messages: () => logger.lines.map((line) => line.message),
  }) as unknown as HostLogger & { messages(): string[] };
}

interface Stage {
  readonly start?: (context: ServiceContext<Config>) => Promise<RunningService>;
  readonly env?: Record<string, string>;
  readonly hasChannel?: boolean;
  readonly dieWithParent?: boolean;
}

/** runService with everything around it in the test's hand. */
function stage({ start, env = {}, hasChannel = false, dieWithParent = false }: Stage = {}) {
  const { host, stdin, notes } = fakeProcess(hasChannel);
  const clock = new ManualClock();
  const timers = new ManualTimers(clock);
  const logger = memoryLogger();
  const drains: number[] = [];
  let finishDrain: () => void = () => {};
  const drained = new Promise<void>((resolve) => {
    finishDrain = resolve;
  });
  const started = Promise.withResolvers<ServiceContext<Config>>();
  const service: RunningService = {
    drain(deadlineMs) {
      drains.push(deadlineMs);
      return drained;
    },
  };
  const code = runService<Config>({
    name: "test",
    config: loadConfig({ schema, file: null, env }),
    async start(context) {
      const running = start === undefined ? service : await start(context);
      started.resolve(context);
      return ok(running);
    },
    dieWithParent,
    process: host,
    logger,
    clock,
    timers,
  });
  return {
    host,
    stdin,
    notes,
    timers,
    logger,
    drains,
    finishDrain,
    started: started.promise,
    code,
  };
}

/** Lets promise callbacks run; no time passes. */
async function turn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

t.test("SIGTERM drains within the configured deadline and ends with 0", async (t) => {
  for (const signal of ["SIGTERM", "SIGINT"]) {
    const run = stage({ env: { BATON_SHUTDOWN_DRAIN_DEADLINE_MS: "7000" } });
    const context = await run.started;
    await turn();
    t.equal(context.stopping.aborted, false);
    run.host.events.emit(signal);
    t.equal(context.stopping.aborted, true, "the service knows at once");
    await turn();
    t.strictSame(run.drains, [7_000]);
    run.finishDrain();
    t.equal(await run.code, 0);
    t.equal(run.notes.exitCode, 0);
    t.strictSame(run.notes.exits, [], "nothing is ended by force");
    t.equal(run.timers.pending, 0, "no timer is left behind");
    t.equal(run.host.events.listenerCount(signal), 0);
    t.strictSame(run.logger.messages(), ["starting", "started", "stopping", "stopped"]);
    run.notes.unheld[0]!();
    t.strictSame(run.notes.exits, [0], "the last resort, when the loop does not empty");
  }
});

t.test("work that outlives the deadline is cut with 75", async (t) => {
  const run = stage({ env: { BATON_SHUTDOWN_DRAIN_DEADLINE_MS: "7000" } });
  await run.started;
  run.host.events.emit("SIGTERM");
  await turn();
  run.timers.advance(7_999);
  t.strictSame(run.notes.exits, []);
  run.timers.advance(1);
  t.strictSame(run.notes.exits, [75]);
});

t.test("a second signal ends the process at once, with its own code", async (t) => {
  for (const [first, second, code] of [
    ["SIGTERM", "SIGTERM", 143],
    ["SIGTERM", "SIGINT", 130],
  ] as const) {
    const run = stage();
    await run.started;
    run.host.events.emit(first);
    await turn();
    run.host.events.emit(second);
    t.strictSame(run.notes.exits, [code]);
  }
});

t.test("a signal during the start stops it: what then started is drained", async (t) => {
  const run = stage({
    start: ({ stopping }) =>
      new Promise((resolve) => {
        stopping.addEventListener("abort", () => resolve({ drain: async () => {} }));
      }),
  });
  await turn();
  run.host.events.emit("SIGTERM");
  t.equal(await run.code, 0);
  const hung = stage({ start: () => new Promise(() => {}) });
  await turn();
  hung.host.events.emit("SIGTERM");
  hung.timers.advance(31_000);
  t.strictSame(hung.notes.exits, [75], "a start that does not end is cut as well");
});

t.test("the parent's death drains quickly", async (t) => {
  const channel = stage({ hasChannel: true });
  await channel.started;
  channel.host.events.emit("disconnect");
  await turn();
  t.strictSame(channel.drains, [1_000]);
  const piped = stage({ dieWithParent: true });
  await piped.started;
  piped.stdin.emit("end");
  piped.stdin.emit("close");
  await turn();
  t.strictSame(piped.drains, [1_000]);
  const alone = stage();
  await alone.started;
  alone.host.events.emit("disconnect");
  alone.stdin.emit("end");
  await turn();
  t.strictSame(alone.drains, [], "without a channel and without the flag nothing is watched");
});

t.test("a service that gives up is drained and ends with the code of its error", async (t) => {
  const run = stage();
  const { stop } = await run.started;
  stop(batonError("BATON_BUS_CLOSED", "The bus closed."));
  stop(null);
  await turn();
  run.finishDrain();
  t.equal(await run.code, 69);
  t.match(run.notes.errors, /^error BATON_BUS_CLOSED: The bus closed\.\n {2}next step: /);
});

t.test("a crash is logged with its stack and ends the process with 70", async (t) => {
  for (const event of ["uncaughtException", "unhandledRejection"]) {
    const run = stage();
    await run.started;
    run.host.events.emit(event, new Error("boom"));
    t.strictSame(run.notes.exits, [70]);
    t.equal(run.logger.messages().at(-1), "crash");
  }
  const thrown = stage({ start: () => Promise.reject(new Error("boom")) });
  t.equal(await thrown.code, 70);
  t.strictSame(thrown.notes.exits, [70]);
  const badDrain = stage({
    start: async () => ({ drain: () => Promise.reject(new Error("boom")) }),
  });
  await badDrain.started;
  badDrain.host.events.emit("SIGTERM");
  t.equal(await badDrain.code, 70);
});

t.test("what cannot start says so in one message, and in its exit code", async (t) => {
  const { host, notes } = fakeProcess();
  const code = await runService({
    name: "test",
    config: loadConfig({
      schema,
      file: null,
      env: { BATON_LOG_LEVEL: "loud", BATON_ADMIN_PORT: "x" },
    }),
    start: () => Promise.reject(new Error("not reached")),
    process: host,
  });
  t.equal(code, 64);
  t.equal(
    notes.errors,
    `error BATON_CONFIG_INVALID: 2 problems in the configuration:
  BATON_ADMIN_PORT admin.port: "x" is not an integer. Allowed: 0 to 65535.
  BATON_LOG_LEVEL log.level: "loud" is not allowed. Allowed: debug, info, warn, error.
  next step: ${errorCatalogue.BATON_CONFIG_INVALID.nextStep}
`,
  );
  const codes = {
    BATON_CONFIG_INVALID: 64,
    BATON_BUS_UNREACHABLE: 69,
    BATON_PORT_IN_USE: 69,
    BATON_TOKENIZER_FAILED: 71,
  } as const;
  for (const [name, expected] of Object.entries(codes)) {
    const failed = fakeProcess();
    const found = await runService<Config>({
      name: "test",
      config: loadConfig({ schema, file: null, env: {} }),
      start: async () => fail(batonError(name as keyof typeof codes, "Why.")),
      process: failed.host,
      logger: memoryLogger(),
    });
    t.equal(found, expected);
    t.equal(failed.notes.exitCode, expected);
    t.match(failed.notes.errors, `error ${name}: Why.\n  next step: `);
    t.equal(exitCodeOf(batonError(name as keyof typeof codes, "")), expected);
  }
});

interface Child {
  readonly child: ChildProcess;
  readonly output: () => string;
  /** Resolves when a line of the log has this message. */
  readonly said: (message: string) => Promise<Record<string, unknown>>;
  readonly ended: Promise<{ code: number | null; signal: string | null }>;
}

function launch(
  t: Test,
  env: Record<string, string> = {},
  more: { args?: string[]; ipc?: boolean } = {},
): Child {
  const file = join(import.meta.dirname, "fixtures", "service.ts");
  const stdio = ["pipe", "pipe", "pipe", ...(more.ipc ? ["ipc" as const] : [])] as const;
  const child = spawn(process.execPath, [file, ...(more.args ?? [])], {
    env: { PATH: process.env.PATH, ...env },
    stdio: [...stdio],
  });
  t.teardown(() => child.kill("SIGKILL"));
  let text = "";
  const heard = new EventEmitter();
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding("utf8").on("data", (part: string) => {
      text += part;
      heard.emit("text");
    });
  }
  // Not "close" of the child: a channel that we closed ourselves holds it back for ever.
  const streams = [child.stdout, child.stderr].map((stream) => once(stream!, "close"));
  const ended = once(child, "exit").then(async ([code, signal]) => {
    await Promise.all(streams);
    heard.emit("text");
    return { code, signal } as { code: number | null; signal: string | null };
  });
  const find = (message: string) =>
    text
      .split("\n")
      .filter((line) => line.startsWith("{") && line.endsWith("}"))
      .map((line) => JSON.parse(line))
      .find((record) => record.msg === message);
  const said = async (message: string): Promise<Record<string, unknown>> => {
    for (;;) {
      const record = find(message);
      if (record !== undefined) return record;
      if (child.exitCode !== null || child.signalCode !== null)
        throw new Error(`ended without saying ${message}:\n${text}`);
      await new Promise((resolve) => heard.once("text", resolve));
    }
  };
  return { child, output: () => text, said, ended };
}

t.test("a real process: SIGTERM drains, empties its loop and ends with 0", async (t) => {
  const { child, said, ended, output } = launch(t, { BATON_SHUTDOWN_DRAIN_DEADLINE_MS: "5000" });
  const { config } = await said("starting");
  t.match(config, {
    "shutdown.drainDeadlineMs": { value: 5_000, from: "BATON_SHUTDOWN_DRAIN_DEADLINE_MS" },
  });
  await said("started");
  child.kill("SIGTERM");
  t.strictSame(await ended, { code: 0, signal: null });
  t.match(await said("draining"), { deadlineMs: 5_000 });
  t.notMatch(output(), "event loop did not empty");
});

t.test("a real process: a leak is named and the last resort ends it, still with 0", async (t) => {
  const { child, said, ended } = launch(t, { FIXTURE_MODE: "leak" });
  await said("started");
  child.kill("SIGINT");
  t.strictSame(await ended, { code: 0, signal: null });
  t.match(await said("event loop did not empty"), { resources: /TCPServerWrap/ });
});

t.test("a real process: a second signal ends a stuck drain", async (t) => {
  const { child, said, ended } = launch(t, { FIXTURE_MODE: "stuck" });
  await said("started");
  child.kill("SIGTERM");
  await said("draining");
  child.kill("SIGTERM");
  t.strictSame(await ended, { code: 143, signal: null });
  await said("second signal, ending at once");
});

t.test("a real process: bugs end it with 70, and the log has the stack", async (t) => {
  const thrown = launch(t, { FIXTURE_MODE: "throw" });
  t.equal((await thrown.ended).code, 70);
  t.match(await thrown.said("crash"), {
    kind: "uncaught exception",
    error: { name: "InvariantError", message: "a promise was broken", stack: /service\.ts:\d+/ },
  });
  const rejected = launch(t, { FIXTURE_MODE: "reject" });
  t.equal((await rejected.ended).code, 70);
  t.match(await rejected.said("crash"), { error: { message: "nobody waits" } });
});

t.test("a real process: it follows its parent, by channel or by standard input", async (t) => {
  const channel = launch(t, {}, { ipc: true });
  await channel.said("started");
  channel.child.disconnect();
  t.strictSame(await channel.ended, { code: 0, signal: null });
  const piped = launch(t, {}, { args: ["--die-with-parent"] });
  await piped.said("started");
  piped.child.stdin?.end();
  t.strictSame(await piped.ended, { code: 0, signal: null });
  t.match(await piped.said("stopping"), { kind: "parent-gone" });
  const watched = launch(t, {}, { args: ["--die-with-parent"] });
  await watched.said("started");
  watched.child.kill("SIGTERM");
  t.strictSame(
    await watched.ended,
    { code: 0, signal: null },
    "an open pipe does not keep it alive",
  );
  t.notMatch(watched.output(), "event loop did not empty", "not by the last resort");
});

t.test("a real process: what keeps it from starting is told without secrets", async (t) => {
  const config = launch(t, { BATON_WORK_COUNT: "10" });
  t.equal((await config.ended).code, 64);
  t.match(config.output(), "BATON_WORK_COUNT work.count: 10 is too large. Allowed: 0 to 9.");
  const bus = launch(t, { FIXTURE_MODE: "no-bus" });
  t.equal((await bus.ended).code, 69);
  t.match(
    bus.output(),
    "error BATON_BUS_UNREACHABLE: No NATS at bus:4222.\n  cause: connect ECONNREFUSED nats://user:***@bus:4222\n  next step: ",
  );
  t.notMatch(bus.output(), "hunter2");
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  t.teardown(() => taken.close());
  const { port } = taken.address() as AddressInfo;
  const second = launch(t, { FIXTURE_PORT: `${port}` });
  t.equal((await second.ended).code, 69);
  t.match(second.output(), `error BATON_PORT_IN_USE: 127.0.0.1:${port} is taken`);
  const stopped = launch(t, { FIXTURE_MODE: "stop" });
  t.equal((await stopped.ended).code, 69);
  t.match(stopped.output(), "error BATON_BUS_CLOSED: The bus closed for good.");
});

t.test("real clocks and timers: never early, in order, and cancelled for good", async (t) => {
  const nowMs = systemClock.nowMs();
  const calls: string[] = [];
  const late = systemTimers.after(20, () => calls.push("late"));
  systemTimers
    .after(5, () => {
      calls.push("cancelled");
    })
    .cancel();
  await new Promise<void>((resolve) => {
    // The loop is held up here, so that setTimeout's own notion of now is old.
    const untilMs = performance.now() + 30;
    while (performance.now() < untilMs);
    const armedMs = systemClock.nowMs();
    systemTimers.after(15, () => {
      t.ok(systemClock.nowMs() - armedMs >= 15, "not early");
      calls.push("last");
      resolve();
    });
  });
  t.strictSame(calls, ["late", "last"]);
  late.cancel();
  late.cancel();
  t.ok(systemClock.nowMs() > nowMs);
  t.ok(Math.abs(systemClock.wallMs() - Date.now()) < 60_000);
  const far = systemTimers.after(1e12, () => calls.push("far"));
  await new Promise<void>((resolve) => systemTimers.after(5, resolve));
  far.cancel();
  t.equal(calls.length, 2, "a delay beyond 32 bits does not fire at once");
  t.throws(() => systemTimers.after(Number.NaN, () => {}), /needs a delay/);
});

t.test("a repeated timer skips the beats that a blocked loop missed", async (t) => {
  const periodMs = 20;
  const startMs = performance.now();
  const callsMs: number[] = [];
  await new Promise<void>((resolve) => {
    const timer = systemTimers.every(periodMs, () => {
      callsMs.push(performance.now() - startMs);
      if (callsMs.length === 1) {
        const untilMs = performance.now() + 5 * periodMs;
        while (performance.now() < untilMs);
      } else if (callsMs.length === 3) {
        timer.cancel();
        resolve();
      }
    });
  });
  t.ok(callsMs[0]! >= periodMs, "the first call comes after one interval");
  t.ok(callsMs[1]! >= 7 * periodMs, "no burst after the blocked loop");
  t.ok(callsMs[2]! >= 8 * periodMs, "then the beat goes on");
  await new Promise<void>((resolve) => systemTimers.after(2 * periodMs, resolve));
  t.equal(callsMs.length, 3, "cancelled from within");
});
