import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";
import { findTestFiles } from "../discover.ts";

const main = join(dirname(import.meta.dirname), "main.ts");
const tap = import.meta.resolve("tap");

/** Writes test files into a temporary folder. */
function fixture(t: Test, files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), "baton test files "));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text.replace('from "tap"', `from "${tap}"`));
  }
  return folder;
}

function start(t: Test, args: readonly string[], more: { readonly ipc?: boolean } = {}) {
  const child = spawn(process.execPath, [main, ...args], {
    stdio: ["ignore", "pipe", "pipe", more.ipc === true ? "ipc" : "ignore"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  let output = "";
  child.stdout?.on("data", (chunk: Buffer) => {
    output += chunk;
  });
  // Not "close", which never comes after disconnect().
  const ended = Promise.all([
    once(child, "exit"),
    ...[child.stdout, child.stderr].map((stream) => stream && once(stream, "close")),
  ]).then(([[code]]) => ({ code: code as number | null, output }));
  return { child, ended };
}

/** Runs the files one after the other and returns the exit code and the lines of the output. */
async function run(t: Test, files: Readonly<Record<string, string>>, args: readonly string[] = []) {
  const folder = fixture(t, files);
  const paths = Object.keys(files).map((name) => join(folder, name));
  const { code, output } = await start(t, ["--jobs", "1", ...args, ...paths]).ended;
  const lines = output.replaceAll(`${folder}/`, "").trimEnd().split("\n");
  return { code, lines, last: lines.at(-1), text: lines.join("\n") };
}

const passing =
  'import t from "tap";\nt.ok(true, "a");\nt.test("b", async (t) => { t.ok(1); t.ok(2); });\n';

t.test("leaf assertions are counted, and the last line is the sum", async (t) => {
  const { code, lines, last } = await run(t, {
    "one.test.ts": passing,
    "two.test.ts":
      'import t from "tap";\nt.test("a", async (t) => { t.test("b", async (t) => { t.ok(1); }); });\nt.test("no assertion", async () => {});\n',
  });
  t.equal(code, 0);
  t.equal(last, "5 passed, 0 failed");
  t.match(lines[0], /^ok {3}one\.test\.ts {2}3 passed, 0 failed {2}\d+\.\d s$/);
  t.match(lines[1], /^ok {3}two\.test\.ts {2}2 passed, 0 failed/);
});

t.test("a failed assertion is told with its name, place and difference", async (t) => {
  const { code, last, text } = await run(t, {
    "bad.test.ts": `import t from "tap";
      console.log("said on stdout"); console.error("said on stderr");
      t.test("outer", async (t) => {
        t.equal(1, 2, "numbers agree");
        t.ok(true);
      });
      t.test("throws", async () => { throw new Error("boom"); });`,
    "good.test.ts": passing,
  });
  t.equal(code, 1);
  t.equal(last, "4 passed, 2 failed");
  t.match(text, /FAIL bad\.test\.ts {2}1 passed, 2 failed/);
  t.match(
    text,
    /✗ outer > numbers agree\n +at .*bad\.test\.ts:4\n +--- expected\n.*\n.*\n +-2\n +\+1/,
  );
  t.match(text, /✗ throws > boom/);
  t.match(text, /stdout:\n +said on stdout\n +stderr:\n +said on stderr/);
  t.match(text, /\nfailed: bad\.test\.ts\n/);
});

t.test("skipped tests are shown with their reason and do not count as passed", async (t) => {
  const { code, last, text } = await run(t, {
    "skips.test.ts": `import t from "tap";
      t.test("needs docker", { skip: "no docker here" }, async () => {});
      t.test("one day", { todo: true }, async () => {});
      t.ok(true);`,
  });
  t.equal(code, 0);
  t.equal(last, "1 passed, 0 failed", "always in this form, for scripts");
  t.match(text, /^2 skipped, named above$/m);
  t.match(text, /skipped: needs docker \(no docker here\)\n +skipped: one day \(todo\)/);
});

t.test("a file that does not end well fails, whatever its assertions say", async (t) => {
  const broken: Readonly<Record<string, readonly [string, RegExp]>> = {
    "exit.test.ts": ['import t from "tap";\nt.ok(true);\nprocess.exit(3);', /✗ exit code 3/],
    "signal.test.ts": [
      'import t from "tap";\nt.ok(true);\nprocess.kill(process.pid, "SIGKILL");',
      /✗ ended by SIGKILL/,
    ],
    "syntax.test.ts": ["const a = ;", /✗ exit code 1\n +stderr:[\s\S]*SyntaxError/],
    "late.test.ts": [
      'import t from "tap";\nt.ok(true);\nsetTimeout(() => { throw new Error("late crash"); }, 20);',
      /✗ late crash/,
    ],
    "empty.test.ts": ["export {};", /✗ no test ran/],
    "count.test.ts": [
      'console.log("TAP version 14\\n1..3\\nok 1 - a\\nok 2 - b");',
      /✗ incorrect number of tests/,
    ],
    "bail.test.ts": [
      'import t from "tap";\nt.ok(true);\nt.bailout("no disk");',
      /✗ bail out: no disk/,
    ],
  };
  const files = Object.entries(broken).map(([name, [code]]) => [name, code]);
  const { code, last, text } = await run(t, Object.fromEntries(files));
  t.equal(code, 1);
  t.match(last, /^\d+ passed, [1-9]\d* failed/);
  for (const [name, [, message]] of Object.entries(broken)) {
    t.match(
      text.split(/^(?=FAIL|ok )/m).find((part) => part.includes(name)),
      message,
      name,
    );
  }
});

t.test("a file that hangs is named by tap, and then killed", async (t) => {
  const hanging = `import t from "tap";
    t.test("waits for nothing", async () => { setInterval(() => {}, 1000); await new Promise(() => {}); });`;
  const { code, text, last } = await run(t, { "hang.test.ts": hanging, "next.test.ts": passing }, [
    "--tap-timeout",
    "0.5",
    "--kill-after",
    "2",
  ]);
  t.equal(code, 1);
  t.match(text, /✗ waits for nothing > timeout!/);
  t.match(text, /✗ killed: no end after 2 s/);
  t.match(text, /ok {3}next\.test\.ts/, "the files behind it still run");
  t.match(last, /^3 passed, [1-9] failed$/);
});

const leavesChild = `import t from "tap";
  import { spawn } from "node:child_process";
  import { writeFileSync } from "node:fs";
  const child = spawn("sleep", ["600"], { stdio: "ignore" });
  child.unref();
  writeFileSync(import.meta.dirname + "/pid", String(child.pid));
  t.ok(true);`;

t.test("a process that a test leaves behind is named and ended", async (t) => {
  if (process.platform !== "linux") {
    t.pass("only Linux tells who is in a process group");
    return;
  }
  const folder = fixture(t, { "leaves.test.ts": leavesChild });
  const { code, output } = await start(t, [join(folder, "leaves.test.ts")]).ended;
  t.equal(code, 1);
  t.match(output, /✗ left running: sleep 600 \(pid \d+\)/);
  t.notOk(isRunning(Number(readFileSync(join(folder, "pid"), "utf8"))));
});

t.test(
  "a runner that is stopped, or whose parent is gone, takes the running tests along",
  async (t) => {
    for (const how of ["SIGTERM", "disconnect"] as const) {
      const folder = fixture(t, {
        "runs.test.ts": `${leavesChild}\nt.test("long", async () => { await new Promise(() => {}); });\nsetInterval(() => {}, 1000);`,
      });
      const { child, ended } = start(t, [join(folder, "runs.test.ts")], { ipc: true });
      const pid = await written(join(folder, "pid"));
      if (how === "SIGTERM") {
        child.kill("SIGTERM");
      } else {
        child.disconnect();
      }
      t.equal((await ended).code, how === "SIGTERM" ? 143 : 1);
      await until(() => !isRunning(pid));
      t.notOk(isRunning(pid), how);
    }
  },
);

t.test("a wish that fits no test is refused, with a hint", async (t) => {
  const { child, ended } = start(t, ["packages/nowhere"]);
  let stderr = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    stderr += chunk;
  });
  t.equal((await ended).code, 64);
  t.match(stderr, /no test file fits "packages\/nowhere"; give a file, a folder, or a part/);
});

t.test("files are found where tests live, and a wish is a file, a folder or a part", async (t) => {
  const root = fixture(t, {
    "packages/a/test/one.test.ts": "",
    "packages/a/test/deep/two.test.ts": "",
    "packages/a/src/not.test.ts": "",
    "packages/a/test/helper.ts": "",
    "services/s/test/three.test.ts": "",
    "test/e2e/four.test.ts": "",
    "tools/x/test/five.test.ts": "",
    "bench/y/test/six.test.ts": "",
    "tools/node_modules/z/test/seven.test.ts": "",
  });
  t.same(findTestFiles(root, []).files, [
    "test/e2e/four.test.ts",
    "tools/x/test/five.test.ts",
    "packages/a/test/deep/two.test.ts",
    "packages/a/test/one.test.ts",
    "services/s/test/three.test.ts",
    "bench/y/test/six.test.ts",
  ]);
  const found = (...wanted: string[]) => findTestFiles(root, wanted);
  t.same(found("services").files, ["services/s/test/three.test.ts"]);
  t.same(found("./test/e2e", "two").files, [
    "test/e2e/four.test.ts",
    "packages/a/test/deep/two.test.ts",
  ]);
  t.same(found("packages/a/test/helper.ts").files, ["packages/a/test/helper.ts"]);
  t.same(found("nine", "two"), { files: ["packages/a/test/deep/two.test.ts"], unknown: ["nine"] });
});

/** Alive and not a zombie that waits for its parent. */
function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !/^\d+ \(.*\) Z/.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

async function written(file: string): Promise<number> {
  let pid = 0;
  await until(() => {
    try {
      pid = Number(readFileSync(file, "utf8"));
    } catch {
      // Not yet.
    }
    return pid > 0;
  });
  return pid;
}

/** Polls; the test's own timeout is the deadline. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
