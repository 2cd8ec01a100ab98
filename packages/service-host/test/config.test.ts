import assert from "node:assert/strict";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type ConfigProblem,
  changedConfig,
  configError,
  configJsonSchema,
  field,
  hostSections,
  loadConfig,
  originText,
  printConfig,
  problemText,
  readSecretFile,
  renderConfigDoc,
  secret,
} from "@baton/service-host";
import fc from "fast-check";
import t from "tap";
import { parse, stringify } from "yaml";
import { z } from "zod";

const worker = z.strictObject({
  workerId: field.text({ description: "Id." }),
  url: field.url({ schemes: ["http", "https"], description: "Where it listens." }),
  weight: field.ratio({ description: "Share of the traffic." }).default(1),
});

const schema = z.strictObject({
  ...hostSections({ adminPort: 9_401 }),
  bus: z.strictObject({
    url: field
      .url({ schemes: ["nats", "tls"], description: "NATS." })
      .nullable()
      .default(null),
    token: secret(field.text({ description: "NATS token." }))
      .nullable()
      .default(null),
    requestDeadlineMs: field.durationMs({ min: 1, max: 1_000, description: "Wait." }).default(50),
  }),
  queue: z.strictObject({
    tokensMax: field.integer({ min: 1, max: 1e9, unit: "tokens", description: "Cap." }),
    order: field.choice(["sjf", "edf"], { description: "Who is next." }).default("sjf"),
    hold: field.flag({ description: "Hold." }).default(true),
  }),
  peers: z
    .array(field.hostPort({ description: "Peer." }))
    .default([])
    .meta({ description: "Peers." }),
  workers: z.array(worker).default([]).meta({ description: "Workers." }),
  models: z
    .record(
      z.string(),
      z.strictObject({ tensorParallel: field.integer({ min: 1, max: 64, description: "GPUs." }) }),
    )
    .default({})
    .meta({ description: "Models." }),
});

const folder = t.testdir({});
let files = 0;

function yamlFile(text: string | Uint8Array): string {
  const file = join(folder, `config-${files++}.yaml`);
  writeFileSync(file, text);
  return file;
}

function load(
  text: string | null,
  env: Record<string, string> = {},
  overrides: Record<string, unknown> = {},
) {
  return loadConfig({ schema, file: text === null ? null : yamlFile(text), env, overrides });
}

function value(...parameters: Parameters<typeof load>) {
  const loaded = load(...parameters);
  if (!loaded.ok) throw new Error(loaded.error.map(problemText).join("\n"));
  return loaded.value;
}

/** The problems as text, with the file's path cut to `FILE`. */
function problems(...parameters: Parameters<typeof load>): string[] {
  const loaded = load(...parameters);
  return loaded.ok
    ? []
    : loaded.error.map((problem) => problemText(problem).replace(/^\/.+\.yaml/, "FILE"));
}

const required = { BATON_QUEUE_TOKENS_MAX: "1000" };

t.test("every problem of every source is told at once, with its place", (t) => {
  const text = `# Baton
bus:
  urll: nats://a
  requestDeadlineMs: 5000
  token: 12
http: 3
log: {level: loud}
workers:
  - workerId: a
    url: ftp://x
  - 5
  - {workerId: b, url: "http://b", weigth: 0.5}
models:
  Qwen/Qwen3-0.6B: {tensorParallel: 0.5}
queue:
  hold: "yes"
`;
  const env = {
    BATON_ADMIN_PORT: "tcp://10.1.2.3:80",
    BATON_SHUTDOWN_DRAIN_DEADLINE_MS: "5s",
    BATON_PEERS: "10.0.0.1:5557,nonsense,[fd00::1]:70000",
  };
  t.strictSame(problems(text, env, { "admin.hst": "x" }), [
    "FILE:3:3 bus.urll: unknown key. Did you mean bus.url?",
    "FILE:4:22 bus.requestDeadlineMs: 5000 is too large. Allowed: 1 to 1000.",
    "FILE:5:10 bus.token: a number is not a string. Allowed: 1 to 4096 characters or null.",
    "FILE:6:1 http: unknown key. Allowed: log, admin, shutdown, bus, queue, peers, workers, models.",
    'FILE:7:14 log.level: "loud" is not allowed. Allowed: debug, info, warn, error.',
    'FILE:10:10 workers[0].url: "ftp://x" is not such a URL. Allowed: a URL starting with http:// or https://.',
    "FILE:11:5 workers[1]: 5 is not a set of keys and values.",
    "FILE:12:36 workers[2].weigth: unknown key. Did you mean workers[2].weight?",
    'FILE:14:37 models["Qwen/Qwen3-0.6B"].tensorParallel: 0.5 is not an integer. Allowed: 1 to 64.',
    "FILE:15:1 queue.tokensMax: is missing. Allowed: 1 to 1000000000. Set it here or with BATON_QUEUE_TOKENS_MAX.",
    'FILE:16:9 queue.hold: "yes" is not a boolean. Allowed: true, false.',
    "BATON_ADMIN_PORT admin.port: holds what Kubernetes writes for a Service of this name. Allowed: 0 to 65535. Set enableServiceLinks: false in the pod, or rename the Service.",
    'BATON_PEERS peers[1]: "nonsense" is not host:port. Allowed: host:port, such as 10.0.0.1:5557 or [fd00::1]:5557.',
    'BATON_PEERS peers[2]: "[fd00::1]:70000" is not host:port. Allowed: host:port, such as 10.0.0.1:5557 or [fd00::1]:5557.',
    'BATON_SHUTDOWN_DRAIN_DEADLINE_MS shutdown.drainDeadlineMs: "5s" is not an integer. Allowed: 0 to 3600000.',
    "command line admin.hst: is no key of this config. Did you mean admin.host?",
  ]);
  t.end();
});

t.test("a file that is broken says where", (t) => {
  t.match(problems("queue:\n  tokensMax: 1\n  tokensMax: 2\n"), [
    /^FILE:3:3 the key tokensMax stands here a second time\.$/,
  ]);
  t.match(problems("queue:\n  tokensMax: [1\nbus: 3\n")[0], /^FILE:\d+:\d+ .+/);
  t.match(problems("queue:\n\ttokensMax: 1\n")[0], /^FILE:2:1 .*[Tt]ab/);
  t.match(problems("- 1\n"), [/^FILE:1:1 a config file holds keys and values at its top\.$/]);
  t.match(problems("? [a, b]\n: 1\nqueue: {tokensMax: 1}\n"), [
    /^FILE:1:3 a list or an object cannot be a key/,
  ]);
  t.match(problems("__proto__: {a: 1}\nqueue: {tokensMax: 1}\n"), [
    /^FILE:1:1 __proto__: unknown key/,
  ]);
  const notText = loadConfig({
    schema,
    file: yamlFile(Uint8Array.of(0xff, 0xfe, 0x41)),
    env: required,
  });
  t.match(notText, { ok: false, error: [{ message: "the file is not UTF-8" }] });
  const absent = loadConfig({ schema, file: join(folder, "absent.yaml"), env: {} });
  t.match(absent, { ok: false, error: [{ message: /cannot be read \(ENOENT\)/ }] });
  const bomb = ["a: &a [1,1,1,1,1,1,1,1,1,1]"];
  for (let depth = 1; depth < 8; depth++) {
    const last = depth === 1 ? "a" : `a${depth - 1}`;
    bomb.push(`a${depth}: &a${depth} [${Array(10).fill(`*${last}`).join(",")}]`);
  }
  t.match(problems(bomb.join("\n")).join("\n"), /expands too far/, "aliases have a cap");
  t.end();
});

t.test("sections may be absent, empty, aliased or JSON; keys are then found all the same", (t) => {
  t.equal(value(null, required).value.admin.port, 9_401, "no file at all");
  t.equal(value("", required).value.log.level, "info", "an empty file");
  t.equal(value("# only a comment\n", required).value.bus.url, null);
  t.equal(value("log:\n  # level: debug\nqueue:\n  tokensMax: 5\n").value.log.level, "info");
  t.equal(value('{"queue": {"tokensMax": 7}}').value.queue.tokensMax, 7);
  const aliased = value("queue: {tokensMax: &n 7}\nbus: {requestDeadlineMs: *n}\n");
  t.equal(aliased.value.bus.requestDeadlineMs, 7);
  t.match(problems(null), [
    "queue.tokensMax: is missing. Allowed: 1 to 1000000000. Set it here or with BATON_QUEUE_TOKENS_MAX.",
  ]);
  t.end();
});

t.test("what is wrong stands at the line and column that is told", (t) => {
  const keys = ["requestDeadlineMs", "tokensMax", "drainDeadlineMs", "port"] as const;
  const sections = {
    requestDeadlineMs: "bus",
    tokensMax: "queue",
    drainDeadlineMs: "shutdown",
    port: "admin",
  };
  const entry = fc.record({
    indent: fc.integer({ min: 1, max: 6 }),
    gap: fc.integer({ min: 1, max: 5 }),
    before: fc.array(fc.constantFrom("", "# a comment", "  # déjà vu €"), { maxLength: 3 }),
    wrong: fc.boolean(),
  });
  const entries = fc.tuple(entry, entry, entry, entry);
  const order = fc.shuffledSubarray([0, 1, 2, 3], { minLength: 4 });
  const newline = fc.constantFrom("\n", "\r\n");
  fc.assert(
    fc.property(entries, order, newline, (choices, positions, lineEnd) => {
      const lines: string[] = [];
      const expected: string[] = [];
      for (const position of positions) {
        const { indent, gap, before, wrong } = choices[position]!;
        const key = keys[position]!;
        lines.push(`${sections[key]}:`, ...before);
        const head = `${" ".repeat(indent)}${key}:${" ".repeat(gap)}`;
        lines.push(head + (wrong ? "oops" : "1"));
        if (wrong) expected.push(`FILE:${lines.length}:${head.length + 1}`);
      }
      const found = problems(lines.join(lineEnd)).map((text) => text.split(" ")[0]);
      assert.deepEqual(found, expected);
    }),
    { numRuns: 100 },
  );
  t.end();
});

t.test("an override goes before the environment, before the file, before the default", (t) => {
  const leaves = [
    {
      path: ["bus", "requestDeadlineMs"],
      env: "BATON_BUS_REQUEST_DEADLINE_MS",
      value: fc.integer({ min: 1, max: 1000 }),
      init: 50,
    },
    {
      path: ["bus", "url"],
      env: "BATON_BUS_URL",
      value: fc.constantFrom("nats://a:1", "tls://b", null),
      init: null,
    },
    {
      path: ["queue", "tokensMax"],
      env: "BATON_QUEUE_TOKENS_MAX",
      value: fc.integer({ min: 1, max: 1e9 }),
      init: undefined,
    },
    { path: ["queue", "hold"], env: "BATON_QUEUE_HOLD", value: fc.boolean(), init: true },
    {
      path: ["peers"],
      env: "BATON_PEERS",
      value: fc.array(fc.constantFrom("a:1", "10.0.0.1:5557", "[::1]:9")),
      init: [],
    },
    {
      path: ["models"],
      env: "BATON_MODELS",
      value: fc.dictionary(
        fc.constantFrom("m", "Qwen/Q3.5"),
        fc.record({ tensorParallel: fc.integer({ min: 1, max: 64 }) }, { noNullPrototype: true }),
        { noNullPrototype: true },
      ),
      init: {},
    },
  ] as const;
  const source = (arbitrary: fc.Arbitrary<unknown>) => fc.option(arbitrary, { nil: undefined });
  const one = (index: number) => {
    const arbitrary = leaves[index]!.value as fc.Arbitrary<unknown>;
    return fc.record({
      file: source(arbitrary),
      env: source(arbitrary),
      override: source(arbitrary),
      asText: fc.boolean(),
    });
  };
  const text = (given: unknown): string =>
    given === null
      ? ""
      : Array.isArray(given)
        ? given.join(",")
        : typeof given === "object"
          ? JSON.stringify(given)
          : String(given);
  fc.assert(
    fc.property(fc.tuple(one(0), one(1), one(2), one(3), one(4), one(5)), (choices) => {
      const inFile: Record<string, unknown> = {};
      const env: Record<string, string> = {};
      const overrides: Record<string, unknown> = {};
      const expected: { path: string; value: unknown; origin: string }[] = [];
      for (const [index, leaf] of leaves.entries()) {
        const { file, env: inEnv, override, asText } = choices[index]!;
        const path = leaf.path.join(".");
        const [first, second] = leaf.path;
        if (file !== undefined) {
          if (second === undefined) inFile[first!] = file;
          else inFile[first!] = { ...(inFile[first!] as object), [second]: file };
        }
        if (inEnv !== undefined) env[leaf.env] = text(inEnv);
        if (override !== undefined) overrides[path] = asText ? text(override) : override;
        const known = override ?? inEnv ?? file ?? leaf.init;
        const chosen = [override, inEnv, file].find((given) => given !== undefined);
        const origin =
          override !== undefined
            ? "command line"
            : inEnv !== undefined
              ? leaf.env
              : file !== undefined
                ? "FILE"
                : "default";
        expected.push({ path, value: chosen === undefined ? known : chosen, origin });
      }
      const loaded = load(stringify(inFile), env, overrides);
      const tokens = expected.find((each) => each.path === "queue.tokensMax")!;
      assert.equal(loaded.ok, tokens.value !== undefined, "only the required key can be missing");
      if (!loaded.ok) return;
      const changed = changedConfig(loaded.value);
      for (const { path, value, origin } of expected) {
        const found: unknown = path
          .split(".")
          .reduce(
            (inner, key) => (inner as Record<string, unknown>)[key],
            loaded.value.value as unknown,
          );
        assert.deepEqual(found, value, path);
        const from = changed[path]?.from.replace(/^\/.*/, "FILE") ?? "default";
        assert.equal(from, origin, `${path} comes from ${origin}`);
      }
    }),
    { numRuns: 150 },
  );
  t.end();
});

t.test("text of the environment is read by the type of the key, and is never guessed", (t) => {
  const env = (name: string, text: string) => load(null, { ...required, [name]: text });
  t.match(
    value(null, { ...required, BATON_WORKERS: '[{"workerId":"a","url":"http://a"}]' }).value
      .workers,
    [{ workerId: "a", weight: 1 }],
  );
  t.strictSame(value(null, { ...required, BATON_PEERS: " a:1 , b:2 " }).value.peers, [
    "a:1",
    "b:2",
  ]);
  t.strictSame(value(null, { ...required, BATON_PEERS: '["a:1"]' }).value.peers, ["a:1"]);
  t.strictSame(value(null, { ...required, BATON_PEERS: "" }).value.peers, []);
  t.equal(value(null, { ...required, BATON_BUS_URL: "" }).value.bus.url, null);
  for (const text of ["", "yes", "1", "TRUE"]) t.notOk(env("BATON_QUEUE_HOLD", text).ok, text);
  for (const text of ["", "0x10", "1_000", "Infinity", "1e999", "NaN", "12abc", "1.5"]) {
    t.notOk(env("BATON_QUEUE_TOKENS_MAX", text).ok, `${text} is no integer`);
  }
  t.equal(value(null, { BATON_QUEUE_TOKENS_MAX: "1e6" }).value.queue.tokensMax, 1_000_000);
  const broken = env("BATON_WORKERS", "[{secretive");
  t.match(broken, { ok: false, error: [{ path: "workers", message: /^is not JSON/ }] });
  t.notMatch(JSON.stringify(broken), "secretive");
  t.equal(value(null, {}, { queue: { tokensMax: 3 }, "admin.port": 0 }).value.queue.tokensMax, 3);
  t.end();
});

t.test("unknown variables with the prefix are warned about, but for those of Kubernetes", (t) => {
  const { warnings } = value(null, {
    ...required,
    BATON_QUEUE_TOKEN_MAX: "5",
    BATON_CONFIG: "/etc/baton.yaml",
    BATON_FRONTEND_PORT: "tcp://10.0.0.7:8000",
    BATON_FRONTEND_PORT_8000_TCP_ADDR: "10.0.0.7",
    BATON_FRONTEND_SERVICE_HOST: "10.0.0.7",
    OTHER_THING: "1",
  });
  t.strictSame(warnings.map(problemText), [
    "BATON_QUEUE_TOKEN_MAX no key has this name; ignored. Did you mean BATON_QUEUE_TOKENS_MAX?",
  ]);
  t.end();
});

t.test("no secret is ever printed", (t) => {
  const word = fc.stringMatching(/^[A-Z][A-Za-z0-9]{11,20}$/);
  fc.assert(
    fc.property(word, word, (token, password) => {
      const url = `nats://user:${password}@bus:4222`;
      const good = value(null, { ...required, BATON_BUS_TOKEN: token, BATON_BUS_URL: url });
      assert.equal(good.value.bus.token, token);
      const texts = [printConfig(good), JSON.stringify(changedConfig(good))];
      const wrongUrl = url.replace("nats:", "ftp:");
      const bad = load(null, { BATON_BUS_TOKEN: token.repeat(400), BATON_BUS_URL: wrongUrl });
      assert.equal(bad.ok, false);
      if (!bad.ok) texts.push(configError(bad.error).message, JSON.stringify(bad.error));
      for (const text of texts) {
        assert.ok(!text.includes(token), "the token is masked");
        assert.ok(!text.includes(password), "the password in the URL is masked");
        assert.ok(text.includes("***") || text.includes("the secret given"));
      }
    }),
    { numRuns: 30 },
  );
  t.end();
});

t.test("the printed config says where each value is from, and reads back to the same", (t) => {
  const text = "queue:\n  tokensMax: 5\nworkers:\n  - {workerId: a, url: 'http://a:1'}\n";
  const loaded = value(text, { BATON_PEERS: "a:1" }, { "admin.port": "0" });
  const printed = printConfig(loaded);
  t.match(printed, /^ {2}port: 0 # command line$/m);
  t.match(printed, /^ {2}tokensMax: 5 # .+\.yaml:2:14$/m);
  t.match(printed, /^ {2}- a:1 # BATON_PEERS$/m);
  t.match(printed, /^ {2}order: sjf # default$/m);
  t.match(printed, /^ {4}weight: 1 # default$/m);
  t.match(printed, /^# default\nmodels: \{\}$/m);
  t.strictSame(parse(printed), loaded.value);
  const replaced = value(
    "queue: {tokensMax: 5}\nworkers: [{workerId: a, url: 'http://a', weight: 0.5}]\n",
    {
      BATON_WORKERS: '[{"workerId":"b","url":"http://b"}]',
    },
  );
  t.match(printConfig(replaced), /- workerId: b # BATON_WORKERS\n.*\n {4}weight: 1 # default/);
  t.equal(printConfig(value(printed)).replace(/#.*/g, ""), printed.replace(/#.*/g, ""));
  t.end();
});

t.test("a config is frozen all the way down", (t) => {
  const { value: config } = value(
    "queue: {tokensMax: 5}\nworkers: [{workerId: a, url: 'http://a'}]\n",
  );
  const mutable = config as unknown as {
    queue: { tokensMax: number };
    workers: { weight: number }[];
  };
  t.throws(() => {
    mutable.queue.tokensMax = 6;
  }, TypeError);
  t.throws(() => {
    mutable.workers[0]!.weight = 0;
  }, TypeError);
  t.throws(() => mutable.workers.push({ weight: 1 }), TypeError);
  t.end();
});

t.test("secret files are read without their newline and refused when they hold nothing", (t) => {
  const dir = t.testdir({ token: "s3cret\n", two: "a\nb\n\n", empty: "\n" });
  chmodSync(join(dir, "token"), 0o600);
  chmodSync(join(dir, "two"), 0o644);
  t.strictSame(readSecretFile(join(dir, "token")), {
    ok: true,
    value: { secret: "s3cret", isWorldReadable: false },
  });
  t.strictSame(readSecretFile(join(dir, "two")), {
    ok: true,
    value: { secret: "a\nb\n", isWorldReadable: true },
  });
  t.match(readSecretFile(join(dir, "empty")), { ok: false, error: { message: /is empty/ } });
  t.match(readSecretFile(dir), { ok: false, error: { message: /cannot be read \(EISDIR\)/ } });
  const withFile = (name: string) =>
    load(null, { ...required, BATON_ADMIN_TOKEN_FILE: join(dir, name) });
  t.match(withFile("absent"), {
    ok: false,
    error: [
      { path: "admin.tokenFile", origin: { kind: "env" }, message: /cannot be read \(ENOENT\)/ },
    ],
  });
  t.match(withFile("two"), {
    ok: true,
    value: { warnings: [{ message: /every user of this machine can read/ }] },
  });
  t.match(withFile("token"), { ok: true, value: { warnings: [] } });
  t.end();
});

t.test("the documentation of a schema names every key and is the same each time", (t) => {
  const doc = renderConfigDoc("scheduler", schema);
  t.equal(doc, renderConfigDoc("scheduler", schema));
  t.match(
    doc,
    "| `bus.requestDeadlineMs` | integer | ms | `50` | 1 to 1000 | `BATON_BUS_REQUEST_DEADLINE_MS` | Wait. |",
  );
  t.match(
    doc,
    "| `queue.tokensMax` | integer | tokens | **required** | 1 to 1000000000 | `BATON_QUEUE_TOKENS_MAX` | Cap. |",
  );
  t.match(
    doc,
    "| `bus.token` | string or null |  | `null` | 1 to 4096 characters or null | `BATON_BUS_TOKEN` | NATS token. Secret: never printed. |",
  );
  t.match(
    doc,
    "| `workers[].url` | string |  | **required** | a URL starting with http:// or https:// |  | Where it listens. |",
  );
  t.match(doc, "| `models.*.tensorParallel` | integer |  | **required** | 1 to 64 |  | GPUs. |");
  const columns = doc
    .split("\n")
    .filter((line) => line.startsWith("|"))
    .map((line) => line.match(/(?<!\\)\|/g)!.length);
  t.strictSame([...new Set(columns)], [8], "each row has as many cells as the head");
  const bare = z.strictObject({ a: z.string() });
  t.throws(() => renderConfigDoc("x", bare), /a has no description/);
  t.end();
});

t.test("the JSON schema for editors takes what loadConfig takes", (t) => {
  const json = configJsonSchema(schema) as {
    required: string[];
    properties: Record<string, { properties: Record<string, unknown> }>;
  };
  t.strictSame(json.required, ["queue"], "only a section with a required key is required");
  t.match(json.properties.bus!.properties.requestDeadlineMs, {
    minimum: 1,
    description: "Wait. [ms]",
  });
  t.match(JSON.stringify(json), '"writeOnly":true');
  t.notMatch(JSON.stringify(json), '"unit"');
  t.end();
});

t.test("a schema that breaks the rules does not get far", (t) => {
  const cases: [z.ZodType, RegExp][] = [
    [z.object({ a: z.string() }), /the root is not a z\.strictObject/],
    [z.strictObject({ a: z.object({ b: z.string() }) }), /a is not a z\.strictObject/],
    [
      z.strictObject({ wait: field.durationMs({ description: "x" }) }),
      /wait does not name its unit, ms/,
    ],
    [
      z.strictObject({ aB: z.string(), a: z.strictObject({ b: z.string() }) }),
      /a\.b and aB share .* BATON_A_B/,
    ],
    [z.string(), /a config schema is a strict object/],
  ];
  for (const [bad, message] of cases) {
    t.throws(() => loadConfig({ schema: bad, file: null, env: {} }), message);
  }
  t.end();
});

t.test("cross-field rules and optional sections keep their places", (t) => {
  const window = z.strictObject({
    tls: z
      .strictObject({
        certFile: field.text({ description: "x" }),
        keyFile: field.text({ description: "y" }),
      })
      .optional(),
    window: z
      .strictObject({
        lowMs: field.durationMs({ description: "x" }),
        highMs: field.durationMs({ description: "y" }),
      })
      .refine((range) => range.lowMs <= range.highMs, {
        error: "must not end before it begins",
        path: ["highMs"],
      }),
  });
  const file = yamlFile("window:\n  lowMs: 9\n  highMs: 3\n");
  const bad = loadConfig({ schema: window, file, env: {} });
  const text = bad.ok
    ? []
    : bad.error.map((problem: ConfigProblem) => [
        originText(problem.origin).replace(/^.*yaml/, ""),
        problem.message,
      ]);
  t.strictSame(text, [[":3:11", "3 must not end before it begins"]]);
  const good = loadConfig({ schema: window, file, env: { BATON_WINDOW_HIGH_MS: "10" } });
  t.match(good, { ok: true, value: { value: { tls: undefined } } });
  const half = loadConfig({
    schema: window,
    file,
    env: { BATON_WINDOW_HIGH_MS: "10", BATON_TLS_CERT_FILE: "c" },
  });
  t.match(half, { ok: false, error: [{ path: "tls.keyFile", message: "is missing" }] });
  t.end();
});
