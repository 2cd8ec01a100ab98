import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import t from "tap";
import { lintCompose, readCompose, startOrder } from "./compose-lint.ts";
import { contextPaths, lintDockerfile } from "./dockerfile-lint.ts";
import { findNatsServer, LoopbackCompose } from "./loopback-compose.ts";

const root = dirname(dirname(dirname(import.meta.dirname)));
const read = (file: string) => readFileSync(join(root, file), "utf8");
const composeFile = join(root, "deploy/compose.yaml");
const composeText = read("deploy/compose.yaml");
const dockerfile = read("deploy/docker/Dockerfile");

t.test("the compose file has no objections, and each rule finds its violation", async (t) => {
  t.same(lintCompose(composeText), []);
  const violations: [string, string, RegExp][] = [
    ["image: nats:2.12-alpine", "image: nats:latest", /^nats: image nats:latest is not pinned/],
    ["image: nats:2.12-alpine", "hostname: nats", /^nats: no image/],
    ['user: "1000:1000"', 'user: "0:0"', /^frontend: runs as root/],
    ["read_only: true", "read_only: false", /^frontend: can write its own file system/],
    ["cap_drop: [ALL]", "cap_drop: []", /^frontend: keeps privileges/],
    ['"127.0.0.1:8000:8000"', '"8000:8000"', /^frontend: port 8000:8000 is open to the network/],
    ['HEALTH_PORT: "8001"', 'BATON_BUS_PASSWORD: "x"', /BATON_BUS_PASSWORD holds a secret/],
    ["  healthcheck: *health\n  expose", "  expose", /^prefill-0: no healthcheck/],
    ["service_healthy", "service_started", /: starts before nats answers/],
    ["decode-1: { condition", "decode-9: { condition", /depends on decode-9, which is no service/],
    ["] # OpenAI API, /ready, /metrics", "]", /^line \d+: say after # what the ports are for/],
  ];
  for (const [from, to, found] of violations) {
    t.ok(composeText.includes(from), `the file still has: ${from}`);
    const problems = lintCompose(composeText.replace(from, to));
    t.match(
      problems.find((problem) => found.test(problem)),
      found,
      problems.join("\n"),
    );
  }
  t.throws(
    () =>
      startOrder({
        a: { depends_on: { b: { condition: "" } } },
        b: { depends_on: { a: { condition: "" } } },
      }),
    /circle at a/,
  );
});

t.test("the Dockerfile has no objections, and each rule finds its violation", async (t) => {
  t.same(lintDockerfile(dockerfile), []);
  const violations: [string, string, RegExp][] = [
    ["FROM node:24-bookworm-slim AS build", "FROM node AS build", /^FROM node is not pinned/],
    ["USER 1000:1000", "USER root", /USER is not a number other than 0/],
    ["USER 1000:1000", "", /USER is not a number other than 0/],
    ["HEALTHCHECK ", "LABEL ", /^no HEALTHCHECK/],
    [
      'ENTRYPOINT ["node", "packages/cli/src/main.ts"]',
      "ENTRYPOINT node x",
      /ENTRYPOINT is not in exec/,
    ],
    ["ENV NODE_ENV=production", "ENV NPM_TOKEN=abc", /^ENV NPM_TOKEN stays in the image/],
    ["COPY packages packages", "COPY . .", /COPY \. takes whatever/],
    ["COPY pnpm-lock.yaml", "COPY packages pnpm-lock.yaml", /before pnpm fetch/],
    ["RUN pnpm fetch --prod", "", /no RUN pnpm fetch/],
    ["--frozen-lockfile --prod", "--prod", /no RUN pnpm install --frozen-lockfile/],
    ["COPY services services", "ADD services services", /ADD fetches/],
  ];
  for (const [from, to, found] of violations) {
    t.ok(dockerfile.includes(from), `the file still has: ${from}`);
    const problems = lintDockerfile(dockerfile.replace(from, to));
    t.match(
      problems.find((problem) => found.test(problem)),
      found,
      problems.join("\n"),
    );
  }
});

t.test("what the image copies exists and reaches the build", async (t) => {
  const allowed = read(".dockerignore").split("\n");
  t.equal(
    allowed.find((line) => !line.startsWith("#")),
    "*",
    "all is left out but what is named",
  );
  for (const path of contextPaths(dockerfile)) {
    t.ok(existsSync(join(root, path)), path);
    t.ok(allowed.includes(`!${path}`), `.dockerignore lets ${path} through`);
  }
  const pinned = /pnpmFetched = "([^"]+)"/.exec(read("tools/bootstrap/toolchain.mjs"))?.[1];
  t.match(dockerfile, `pnpm@${pinned}`, "the same pnpm as in a checkout");
});

t.test("paths that the compose file names exist", async (t) => {
  for (const [name, { build, volumes = [], command = [] }] of Object.entries(
    readCompose(composeText),
  )) {
    if (build !== undefined) {
      t.equal(resolve(root, "deploy", build.context), root, name);
      t.ok(existsSync(join(root, build.dockerfile)), name);
    }
    for (const volume of volumes) {
      t.ok(existsSync(join(root, "deploy", volume.split(":")[0] ?? "")), volume);
    }
    for (const file of command.filter((arg) => arg.startsWith("/config/"))) {
      t.ok(existsSync(join(root, "deploy", file)), file);
    }
  }
});

const natsServer = findNatsServer();
const noLoopback =
  process.platform !== "linux"
    ? "only Linux has many loopback addresses"
    : natsServer === null && process.env["CI"] !== "true" && "no nats-server on this machine";

t.test("the composed services start, answer a chat and drain", { skip: noLoopback }, async (t) => {
  const services = readCompose(composeText);
  const compose = new LoopbackCompose({ services, root, natsServer: natsServer ?? "nats-server" });
  t.teardown(() => compose.kill());
  await compose.up();

  const response = await fetch(`${compose.url("frontend", 8000)}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      model: "Qwen/Qwen3-32B",
      messages: [{ role: "user", content: "Tell me about prefill and decode. ".repeat(40) }],
      max_tokens: 8,
    }),
  });
  const text = await response.text();
  t.equal(response.status, 200, text);
  const answer = JSON.parse(text);
  t.equal(answer.model, "Qwen/Qwen3-32B");
  t.equal(answer.usage.completion_tokens, 8);

  const metrics = await Promise.all(
    [
      ["prefill-scheduler", 8001],
      ["decode-scheduler", 8002],
      ["frontend", 8000],
    ].map(async ([name, port]) =>
      (await fetch(`${compose.url(String(name), Number(port))}/metrics`)).text(),
    ),
  );
  for (const page of metrics) {
    t.match(page, /^# TYPE baton_\w+ /m);
  }

  const codes = await compose.down();
  for (const name of Object.keys(services).filter((each) => each !== "nats")) {
    t.equal(codes[name], 0, `${name} ends well on SIGTERM`);
  }
});

const answers = (...args: string[]) => spawnSync("docker", args, { timeout: 20_000 }).status === 0;
const hasCompose = answers("compose", "version");
const hasEngine = hasCompose && answers("info");

t.test(
  "docker compose accepts the file",
  { skip: !hasCompose && "no docker compose on this machine" },
  async (t) => {
    const { status, stderr } = docker(["config", "--quiet"]);
    t.equal(status, 0, stderr);
  },
);

if (hasEngine) {
  t.setTimeout(280_000);
}
t.test(
  "docker compose builds the image, and everything becomes healthy and answers",
  { skip: !hasEngine && "no docker engine on this machine", timeout: 270_000 },
  async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "baton-docker-"));
    const override = join(folder, "override.yaml");
    const published = Object.entries(readCompose(composeText)).filter(([, { ports }]) => ports);
    const resets = published.map(([name]) => `  ${name}:\n    ports: !reset []\n`);
    writeFileSync(override, `services:\n${resets.join("")}`);
    const project = ["-f", override, "-p", `baton-test-${process.pid}`];
    t.teardown(() => {
      docker(["down", "--volumes", "--timeout", "5"], project);
      rmSync(folder, { recursive: true });
    });
    const up = docker(["up", "--build", "--wait", "--wait-timeout", "240"], project);
    t.equal(up.status, 0, up.stderr);
    const chat = `
      const body = JSON.stringify({ model: "Qwen/Qwen3-32B", max_tokens: 8, messages: [{ role: "user", content: "Hello" }] });
      const headers = { "content-type": "application/json" };
      const answer = await fetch("http://127.0.0.1:8000/v1/chat/completions", { method: "POST", headers, body });
      console.log(answer.status);`;
    const said = docker(
      ["exec", "-T", "frontend", "node", "--input-type=module", "-e", chat],
      project,
    );
    t.equal(said.stdout.trim(), "200", said.stderr);
  },
);

function docker(args: readonly string[], project: readonly string[] = []) {
  return spawnSync("docker", ["compose", "-f", composeFile, ...project, ...args], {
    encoding: "utf8",
    timeout: 260_000,
  });
}
