import { spawn, spawnSync } from "node:child_process";
import { existsSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import t from "tap";
import { Checkout, workingNpm } from "./checkout.ts";

const pretend = {
  oldNode: `data:text/javascript,
    Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } });`,
  oldNodeOnMusl: `data:text/javascript,
    Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } });
    Object.defineProperty(process, "platform", { value: "linux" });
    Object.defineProperty(process, "report", { value: { getReport: () => ({ header: {} }) } });`,
  oldNodeOnSparc: `data:text/javascript,
    Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } });
    Object.defineProperty(process, "arch", { value: "sparc" });`,
};

/** npm's retries take 11 s, so it runs beside the other tests. */
const refused =
  spawnSync("npm", ["--version"]).status === 0
    ? new Checkout(t).start({
        preload: pretend.oldNode,
        env: { npm_config_registry: "http://127.0.0.1:1/", PATH: process.env["PATH"] ?? "" },
      })
    : null;

/** Exits of the child come back with what it printed first. */
function firstLine(stdout: string): { args: string[]; execPath: string; pid: number } {
  return JSON.parse(stdout.split("\n")[0] ?? "");
}

t.test("the first run installs and the second does not", async (t) => {
  const checkout = new Checkout(t);
  const first = await checkout.run({ command: "start", args: ["--port", "0", "two words"] });
  t.equal(first.code, 0, first.stderr);
  t.match(first.stderr, /installing dependencies/);
  t.same(firstLine(first.stdout).args, ["start", "--port", "0", "two words"]);

  const second = await checkout.run({ command: "bench", args: ["overhead"] });
  t.equal(second.stderr, "");
  t.same(firstLine(second.stdout).args, ["bench", "overhead"]);
  t.equal(checkout.calls().length, 1);
  t.match(checkout.calls()[0], /--frozen-lockfile .*--prod=false/);
  t.notOk(existsSync(join(checkout.root, ".baton/bootstrap.lock")));
});

t.test("whatever makes node_modules untrue makes the next run install", async (t) => {
  const checkout = new Checkout(t);
  const changes: Record<string, () => void> = {
    "nothing was installed": () => {},
    "the lock file changed": () => checkout.write("pnpm-lock.yaml", "lockfileVersion: 10\n"),
    "a package.json changed": () => checkout.write("packages/a/package.json", '{ "name": "aa" }'),
    "a package came": () => checkout.write("packages/b/package.json", '{ "name": "b" }'),
    "a package went": () => rmSync(join(checkout.root, "packages/b"), { recursive: true }),
    "node_modules was deleted": () =>
      rmSync(join(checkout.root, "node_modules"), { recursive: true }),
    "a package's node_modules was deleted": () => {
      checkout.write("packages/a/package.json", '{ "name": "a", "dependencies": { "b": "1" } }');
      rmSync(join(checkout.root, "packages/a/node_modules"), { recursive: true });
    },
    "somebody ran pnpm by hand": () =>
      utimesSync(join(checkout.root, "node_modules/.modules.yaml"), 1, 1),
  };
  let installs = 0;
  for (const [name, change] of Object.entries(changes)) {
    change();
    await checkout.run();
    installs += 1;
    t.equal(checkout.calls().length, installs, name);
    await checkout.run();
    t.equal(checkout.calls().length, installs, `${name}: once is enough`);
  }
});

t.test("a failed install is not taken for a done one", async (t) => {
  const checkout = new Checkout(t);
  checkout.stub(
    "pnpm",
    '[ "$1" = "--version" ] && echo 12.9.0 && exit 0; mkdir -p node_modules; exit 1',
  );
  t.equal((await checkout.run()).code, 69);
  const again = await checkout.run();
  t.match(again.stderr, /installing dependencies/);
});

t.test("a Node that is too old is replaced by a fetched one, whole or not at all", async (t) => {
  const checkout = new Checkout(t);
  const toolchain = join(checkout.root, ".baton/toolchain");
  checkout.write(".baton/toolchain/node-24.21.0.new-77/half", "of an earlier run");

  checkout.stub("npm", `${workingNpm}\nexit 1`);
  const failed = await checkout.run({ preload: pretend.oldNode });
  t.equal(failed.code, 69);
  t.same(readdirSync(toolchain), [], "nothing half-done stays");

  checkout.stub("npm", workingNpm);
  checkout.stub("pnpm", "echo 9.15.9");
  const done = await checkout.run({ preload: pretend.oldNode });
  t.equal(done.code, 0, done.stderr);
  t.match(done.stderr, /fetching Node 24\.21\.0 .*\n.*fetching pnpm 12\.4\.2/);
  t.same(readdirSync(toolchain).sort(), ["node-24.21.0", "pnpm-12.4.2"]);
  t.match(checkout.calls().join("\n"), /fetched pnpm install --frozen-lockfile/);

  const calls = checkout.calls();
  t.match(calls.at(-2), /--ignore-scripts/, "no install script is needed");
  const third = await checkout.run({ preload: pretend.oldNode });
  t.equal(third.stderr, "");
  t.same(checkout.calls(), calls);
});

t.test("a fetched tool that does not run here is refused", async (t) => {
  const checkout = new Checkout(t);
  checkout.stub(
    "npm",
    `${workingNpm}\nprintf '#!/bin/sh\\necho GLIBC_2.28 not found >&2; exit 1\\n' > "$TO"`,
  );
  const { code, stderr } = await checkout.run({ preload: pretend.oldNode });
  t.equal(code, 69);
  t.match(stderr, /does not run on this machine: GLIBC_2\.28 not found\. Install Node 22\.19/);
  t.same(readdirSync(join(checkout.root, ".baton/toolchain")), []);
});

t.test("a failure is told in one message: what, where, what to do", async (t) => {
  const npmSays: [string, number, RegExp][] = [
    ["npm error code ENOSPC\nnpm error nospc write", 74, /disk is full\. Free about/],
    ["npm error EROFS: read-only file system, mkdir '/x'", 73, /read-only\. Put the checkout/],
    ["npm error EACCES: permission denied, mkdir '/var/x'", 73, /permission to write \/var\/x\./],
    ["npm error 407 Proxy Authentication Required - GET https://r.example/n", 69, /HTTPS_PROXY/],
    [
      "npm error code SELF_SIGNED_CERT_IN_CHAIN https://r.example/n",
      69,
      /r\.example is not trusted/,
    ],
    [
      "npm error code ENOTFOUND request to https://r.example/n",
      69,
      /r\.example cannot be resolved/,
    ],
    ["npm error code EAI_AGAIN request to https://r.example/n", 69, /cannot be resolved/],
    [
      "npm error code ETIMEDOUT request to https://u:secret@r.example/n",
      69,
      /https:\/\/r\.example does not/,
    ],
    [
      "npm error code E404\nnpm error 404 Not Found - GET https://r.example/n",
      69,
      /does not offer/,
    ],
    ["npm error code E401 https://r.example/n", 69, /npm login/],
    ["npm error code EINTEGRITY sha512", 65, /checksum/],
    ["npm error something new", 69, /last words:\n {2}npm error something new/],
  ];
  const checkout = new Checkout(t);
  for (const [output, exitCode, message] of npmSays) {
    checkout.stub("npm", `cat >&2 <<'END'\n${output}\nEND\nexit 1`);
    const { code, stderr, stdout } = await checkout.run({ preload: pretend.oldNode });
    t.equal(code, exitCode, output);
    t.match(stderr, message);
    t.match(stderr, /cannot fetch Node 24\.21\.0/);
    t.notMatch(stderr, /secret/);
    t.equal(stdout, "");
  }

  const pnpmSays: [string, number, RegExp][] = [
    ["Error: ERR_PNPM_OUTDATED_LOCKFILE", 65, /pnpm-lock\.yaml does not match/],
    ["ERR_PNPM_LOCKFILE_CONFIG_MISMATCH Cannot proceed with the frozen installation", 65, /match/],
    [
      "GET http://r.example/x.tgz tcp connect error: Connection refused (os error 111)",
      69,
      /answers at http:\/\/r\.example\./,
    ],
    ["GET http://r.example/x.tgz dns error: failed to lookup address", 69, /cannot be resolved/],
    ["invalid peer certificate: UnknownIssuer https://r.example/x", 69, /NODE_EXTRA_CA_CERTS/],
    ["Failed to create file: Permission denied (os error 13)", 73, /no permission/],
  ];
  for (const [output, exitCode, message] of pnpmSays) {
    checkout.stub(
      "pnpm",
      `[ "$1" = "--version" ] && echo 12.9.0 && exit 0\necho "${output}"; exit 1`,
    );
    const { code, stderr } = await checkout.run();
    t.equal(code, exitCode, output);
    t.match(stderr, message);
  }
});

t.test("a tool that goes on retrying on a full disk is stopped", async (t) => {
  const checkout = new Checkout(t);
  checkout.stub(
    "pnpm",
    `[ "$1" = "--version" ] && echo 12.9.0 && exit 0
     echo "No space left on device (os error 28). Will retry in 1m."; exec sleep 600`,
  );
  const { code, stderr } = await checkout.run();
  t.equal(code, 74);
  t.match(stderr, /disk is full/);
});

t.test("a checkout in which .baton cannot be made says so", async (t) => {
  const checkout = new Checkout(t);
  checkout.write(".baton", "a file where the folder should be");
  const { code, stderr } = await checkout.run();
  t.equal(code, 73, stderr);
  t.match(stderr, /a file lies where a folder should be: .*\.baton\. Remove it/);
});

t.test("where nothing can be fetched, the message names what to install", async (t) => {
  const checkout = new Checkout(t);
  const musl = await checkout.run({ preload: pretend.oldNodeOnMusl });
  t.equal(musl.code, 69);
  t.match(musl.stderr, /musl libc\. Install Node 22\.19 or newer \(Alpine: apk add/);

  const sparc = await checkout.run({ preload: pretend.oldNodeOnSparc });
  t.match(sparc.stderr, /-sparc.* Install Node 22\.19 or newer/);

  const noNpm = await checkout.run({ preload: pretend.oldNode, env: { PATH: checkout.stubs } });
  t.equal(noNpm.code, 69);
  t.match(noNpm.stderr, /npm is not on PATH.*Install npm, or install Node 22\.19/);

  const unknown = await checkout.run({ command: "stat" });
  t.equal(unknown.code, 64);
  t.match(unknown.stderr, /unknown command "stat"; there are: start, baton, bench, test/);
});

t.test("npm's settings for the network reach pnpm", async (t) => {
  const checkout = new Checkout(t);
  checkout.stub(
    "pnpm",
    `[ "$1" = "--version" ] && echo 12.9.0 && exit 0
     echo "at $pnpm_config_registry via $pnpm_config_https_proxy" >> "$LOG"; exit 1`,
  );
  const env = { npm_config_registry: "http://r.example/", npm_config_https_proxy: "http://p" };
  await checkout.run({ env });
  t.same(checkout.calls(), ["at http://r.example/ via http://p"]);
});

t.test("two first runs at the same time install once", async (t) => {
  const checkout = new Checkout(t);
  checkout.stub(
    "pnpm",
    `[ "$1" = "--version" ] && echo 12.9.0 && exit 0
     mkdir busy || { echo overlap >> "$LOG"; exit 1; }
     echo install >> "$LOG"; sleep 0.5
     mkdir -p node_modules packages/a/node_modules; echo "{}" > node_modules/.modules.yaml; rmdir busy`,
  );
  const runs = await Promise.all([checkout.run(), checkout.run(), checkout.run()]);
  t.same(
    runs.map(({ code }) => code),
    [0, 0, 0],
  );
  t.same(checkout.calls(), ["install"]);
  t.match(
    runs.map(({ stderr }) => stderr).join(""),
    /waiting for process \d+, which is installing/,
  );
});

t.test("a lock of a process that is gone is taken over", async (t) => {
  const checkout = new Checkout(t);
  const { pid } = spawnSync("true");
  for (const dead of [JSON.stringify({ pid, host: hostname() }), "torn {"]) {
    checkout.write(".baton/bootstrap.lock", dead);
    rmSync(join(checkout.root, "node_modules"), { recursive: true, force: true });
    t.equal((await checkout.run()).code, 0, dead);
  }
  const elsewhere = join(checkout.root, ".baton/bootstrap.lock");
  writeFileSync(elsewhere, JSON.stringify({ pid: 1, host: "another machine" }));
  utimesSync(elsewhere, new Date(), new Date(Date.now() - 61_000));
  rmSync(join(checkout.root, "node_modules"), { recursive: true });
  t.equal((await checkout.run()).code, 0, "silent for a minute on another machine");
});

t.test("the child's exit code and signal become the command's own", async (t) => {
  const checkout = new Checkout(t);
  await checkout.run();
  t.equal((await checkout.run({ args: ["-", "exit", "0"] })).code, 0);
  t.equal((await checkout.run({ args: ["-", "exit", "64"] })).code, 64);
  t.equal((await checkout.run({ args: ["-", "die", "SIGKILL"] })).signal, "SIGKILL");
  t.equal((await checkout.run({ args: ["-", "die", "SIGTERM"] })).signal, "SIGTERM");
});

t.test(
  "signals are passed on, and a killed bootstrap does not leave the child behind",
  async (t) => {
    const checkout = new Checkout(t);
    await checkout.run();
    for (const [signal, text, code] of [
      ["SIGTERM", "draining", 7],
      ["SIGHUP", "hung up", 8],
    ] as const) {
      const run = checkout.start({ args: ["-", "wait"] });
      await run.sees("ready");
      run.kill(signal);
      const ended = await run.ended;
      t.match(ended.stdout, text);
      t.equal(ended.code, code);
    }
    const interrupted = checkout.start({ args: ["-", "wait"] });
    await interrupted.sees("ready");
    interrupted.kill("SIGINT");
    t.equal(
      (await interrupted.ended).signal,
      "SIGINT",
      "without a terminal, Ctrl-C is passed on too",
    );

    const killed = checkout.start({ args: ["-", "wait"] });
    await killed.sees("ready");
    killed.kill("SIGKILL");
    t.match(
      (await killed.ended).stdout,
      "parent gone",
      "stdout closes only when the child is gone",
    );
  },
);

t.test("npm killed outright ends the command", async (t) => {
  const checkout = new Checkout(t);
  await checkout.run();
  // A stand-in for npm: it runs the command with npm's variable and is killed.
  const npm = spawn(
    process.execPath,
    [
      "-e",
      `require("node:child_process").spawn(process.execPath,
        ["tools/bootstrap/bootstrap.mjs", "baton", "-", "wait"], { stdio: "inherit" });`,
    ],
    {
      cwd: checkout.root,
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, npm_lifecycle_event: "baton" },
    },
  );
  let stdout = "";
  for await (const chunk of npm.stdout) {
    stdout += chunk;
    if (stdout.includes("ready")) {
      npm.kill("SIGKILL");
    }
  }
  t.match(stdout, "draining");
});

t.test(
  "the real npm against a registry that refuses connections",
  { skip: refused === null && "no npm on PATH" },
  async (t) => {
    const { code, stderr } = (await refused?.ended) ?? { code: null, stderr: "" };
    t.equal(code, 69, stderr);
    t.match(stderr, /cannot fetch Node 24\.21\.0: nothing answers at http:\/\/127\.0\.0\.1:1\./);
  },
);
