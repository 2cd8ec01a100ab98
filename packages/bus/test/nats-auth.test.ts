import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { nkeys } from "nats";
import type { Test } from "tap";
import { type BusFault, connectNatsBus, type NatsBusOptions } from "../src/index.ts";
import { bytes, longMs, text, until } from "./harness.ts";
import { connected, connectOnce, folder, runWithNats, started } from "./nats-harness.ts";

const unauthorized = { ok: false, error: { code: "BATON_BUS_UNAUTHORIZED" } };
const invalid = { ok: false, error: { code: "BATON_CONFIG_INVALID" } };

/** A connection counts when a request goes through it. */
async function works(t: Test, options: NatsBusOptions): Promise<void> {
  const bus = await connected(t, options);
  bus.serve("echo", { queue: "q" }, ({ payload }) => payload);
  const answer = await bus.request("echo", bytes("hi"), { deadlineMs: longMs });
  t.equal(answer.ok && text(answer.value), "hi");
}

async function testPassword(t: Test): Promise<void> {
  const server = await started(t, `authorization { user: "al@ice", password: "p/w:d" }`);
  const name = "x";
  const auth = (password: string) => ({ kind: "password", user: "al@ice", password }) as const;
  await works(t, { url: server.url, name, auth: auth("p/w:d") });
  await works(t, { url: `nats://al%40ice:p%2Fw%3Ad@127.0.0.1:${server.port}`, name });
  const wrong = await connectNatsBus({ url: server.url, name, auth: auth("guess") });
  t.match(wrong, unauthorized);
  t.notMatch(JSON.stringify(wrong), "guess");
  t.match(await connectNatsBus({ url: server.url, name }), unauthorized);
}

async function testToken(t: Test): Promise<void> {
  const server = await started(t, `authorization { token: "sesame" }`);
  await works(t, { url: server.url, name: "x", auth: { kind: "token", token: "sesame" } });
  await works(t, { url: `nats://sesame@127.0.0.1:${server.port}`, name: "x" });
  const wrong = await connectNatsBus({ url: `nats://hush@127.0.0.1:${server.port}`, name: "x" });
  t.match(wrong, unauthorized);
  t.notMatch(JSON.stringify(wrong), "hush");
}

async function testNkey(t: Test): Promise<void> {
  const files = folder(t);
  const [pair, other] = [nkeys.createUser(), nkeys.createUser()];
  const server = await started(t, `authorization { users = [ { nkey: ${pair.getPublicKey()} } ] }`);
  const [seedFile, otherFile] = [join(files, "seed"), join(files, "other")];
  writeFileSync(seedFile, `${text(pair.getSeed())}\n`);
  writeFileSync(otherFile, other.getSeed());
  await works(t, { url: server.url, name: "x", auth: { kind: "nkey", seedFile } });
  const auth = { kind: "nkey", seedFile: otherFile } as const;
  t.match(await connectNatsBus({ url: server.url, name: "x", auth }), unauthorized);
}

async function testCreds(t: Test): Promise<void> {
  const [operator, account, user] = [
    nkeys.createOperator(),
    nkeys.createAccount(),
    nkeys.createUser(),
  ];
  const unlimited = { conn: -1, leaf: -1, imports: -1, exports: -1, subs: -1, data: -1 };
  const operatorJwt = jwt(operator, operator.getPublicKey(), { type: "operator", version: 2 });
  const accountJwt = jwt(operator, account.getPublicKey(), {
    type: "account",
    version: 2,
    limits: { ...unlimited, payload: -1, wildcards: true },
  });
  const userJwt = jwt(account, user.getPublicKey(), {
    type: "user",
    version: 2,
    subs: -1,
    data: -1,
    payload: -1,
  });
  const server = await started(
    t,
    [
      `operator: ${operatorJwt}`,
      "resolver: MEMORY",
      `resolver_preload: { ${account.getPublicKey()}: ${accountJwt} }`,
    ].join("\n"),
  );
  const file = join(folder(t), "user.creds");
  const section = (label: string, body: string) =>
    `-----BEGIN ${label}-----\n${body}\n------END ${label}------\n\n`;
  const seed = text(user.getSeed());
  writeFileSync(file, section("NATS USER JWT", userJwt) + section("USER NKEY SEED", seed));
  await works(t, { url: server.url, name: "x", auth: { kind: "creds", file } });
  t.match(await connectNatsBus({ url: server.url, name: "x" }), unauthorized);
}

/** A claim as the NATS tools write it: ed25519 over header and body, both base64url. */
function jwt(issuer: nkeys.KeyPair, subject: string, nats: Record<string, unknown>): string {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const body = { jti: subject, iat: 1_750_000_000, iss: issuer.getPublicKey(), name: "test" };
  const signed = `${part({ typ: "JWT", alg: "ed25519-nkey" })}.${part({ ...body, sub: subject, nats })}`;
  return `${signed}.${Buffer.from(issuer.sign(bytes(signed))).toString("base64url")}`;
}

async function testBadFiles(t: Test): Promise<void> {
  const file = join(folder(t), "bad");
  writeFileSync(file, "not a seed");
  const base = { url: "nats://127.0.0.1:1", name: "x" };
  const missing = `${file}.missing`;
  for (const options of [
    { auth: { kind: "nkey", seedFile: missing } },
    { auth: { kind: "nkey", seedFile: file } },
    { auth: { kind: "creds", file: missing } },
    { auth: { kind: "creds", file } },
    { tls: { caFile: missing } },
    { tls: { certFile: file } },
  ] as const) {
    const outcome = await connectNatsBus({ ...base, ...options });
    t.match(outcome, invalid, JSON.stringify(options));
    t.notMatch(JSON.stringify(outcome), "not a seed");
  }
}

async function testRotation(t: Test): Promise<void> {
  const [before, after] = [nkeys.createUser(), nkeys.createUser()];
  const configOf = (pair: nkeys.KeyPair) =>
    `authorization { users = [ { nkey: ${pair.getPublicKey()} } ] }`;
  const server = await started(t, configOf(before));
  const seedFile = join(folder(t), "seed");
  writeFileSync(seedFile, before.getSeed());
  const faults: BusFault[] = [];
  const bus = await connected(t, {
    url: server.url,
    name: "x",
    auth: { kind: "nkey", seedFile },
    reconnectMsMax: 50,
    onError: (fault) => faults.push(fault),
  });
  await server.restart({ config: configOf(after) });
  const refusals = () =>
    faults.filter(({ error }) => error.code === "BATON_BUS_UNAUTHORIZED").length;
  await until(() => refusals() >= 3, "it has been refused more than once");
  t.equal(bus.state(), "reconnecting");
  // A file that is being written cannot be read as a seed; the last good one counts meanwhile.
  writeFileSync(seedFile, "");
  const seen = refusals();
  await until(() => refusals() > seen, "it goes on trying");
  writeFileSync(seedFile, after.getSeed());
  await until(() => bus.state() === "connected", "the new seed is taken up");
}

async function testTls(t: Test): Promise<void> {
  const files = folder(t);
  const at = (name: string) => join(files, name);
  const openssl = (...options: string[]) =>
    execFileSync("openssl", options, { cwd: files, stdio: ["ignore", "pipe", "pipe"] });
  try {
    openssl("version");
  } catch {
    t.pass("skipped: openssl not found", { skip: "openssl not found" });
    return;
  }
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl("req", "-x509", ...key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test-ca");
  for (const name of ["server", "client"]) {
    writeFileSync(at(`${name}.ext`), "subjectAltName=DNS:localhost,IP:127.0.0.1\n");
    openssl("req", ...key, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
    const sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1"];
    const io = ["-in", `${name}.csr`, "-out", `${name}.pem`, "-extfile", `${name}.ext`];
    openssl("x509", "-req", ...sign, ...io);
  }
  const pem = `cert_file: "${at("server.pem")}", key_file: "${at("server.key")}"`;
  const open = await started(t, `tls { ${pem} }`);
  const mutual = await started(t, `tls { ${pem}, ca_file: "${at("ca.pem")}", verify: true }`);
  const plain = await started(t, "");
  const caFile = at("ca.pem");
  const pair = { certFile: at("client.pem"), keyFile: at("client.key") };
  const name = "x";
  await works(t, { url: open.url, name, tls: { caFile } });
  await works(t, { url: `tls://localhost:${open.port}`, name, tls: { caFile } });
  await works(t, { url: mutual.url, name, tls: { caFile, ...pair } });
  for (const [url, tls, cause] of [
    [open.url, undefined, /certificate/],
    [mutual.url, { caFile }, /./],
    [plain.url, { caFile }, /tls/],
    [`tls://127.0.0.1:${plain.port}`, undefined, /tls/],
  ] as const) {
    const outcome = await connectOnce({ name, url, ...(tls && { tls }) });
    t.match(outcome, { ok: false, error: { code: "BATON_BUS_UNREACHABLE", cause } }, url);
  }
}

await runWithNats({
  "user and password, in options or URL": testPassword,
  "a token, in options or URL": testToken,
  "an nkey seed file": testNkey,
  "a credentials file": testCreds,
  "files that cannot be used are configuration errors": testBadFiles,
  "credentials that become wrong are said, and tried on until mended": testRotation,
  "TLS with an own authority and client certificates": testTls,
});
