import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { nkeys } from "nats";
import type { Test } from "tap";
import {
  type BusFault,
  type NatsBusOptions,
  type NatsUser,
  renderNatsAuthorization,
} from "../src/index.ts";
import { bytes, longMs, text, until } from "./harness.ts";
import { connected, folder, runWithNats, started } from "./nats-harness.ts";

const password = (value: string) => ({ kind: "password", password: value }) as const;

/** The rights of a frontend and of a scheduler, in small. */
const frontendUser: NatsUser = {
  name: "frontend",
  secret: password("f"),
  publish: ["fleet.*.place", "fleet.*.outcome"],
  subscribe: ["fleet.*.view"],
  inboxPrefix: "_INBOX_frontend",
  answerSecondsMax: null,
};
const schedulerUser: NatsUser = {
  name: "scheduler",
  secret: password("s"),
  publish: ["fleet.*.view"],
  subscribe: ["fleet.*.place", "fleet.*.outcome"],
  inboxPrefix: "_INBOX_scheduler",
  answerSecondsMax: 60,
};

function optionsOf(url: string, user: NatsUser, faults: BusFault[]): NatsBusOptions {
  const secret = user.secret.kind === "password" ? user.secret.password : "";
  return {
    url,
    name: user.name,
    auth: { kind: "password", user: user.name, password: secret },
    inboxPrefix: user.inboxPrefix,
    onError: (fault) => faults.push(fault),
  };
}

async function testPermissions(t: Test): Promise<void> {
  const server = await started(t, renderNatsAuthorization([frontendUser, schedulerUser]));
  const faults: BusFault[] = [];
  const frontend = await connected(t, optionsOf(server.url, frontendUser, faults));
  const scheduler = await connected(t, optionsOf(server.url, schedulerUser, faults));
  const views: string[] = [];
  const outcomes: string[] = [];
  frontend.subscribe("fleet.m1.view", {}, ({ payload }) => views.push(text(payload)));
  scheduler.subscribe("fleet.*.outcome", {}, ({ payload }) => outcomes.push(text(payload)));
  scheduler.serve("fleet.m1.place", { queue: "q" }, ({ payload }) => payload);
  scheduler.serve("fleet.m2.place", { queue: "q" }, () => {
    throw new Error("no");
  });
  await Promise.all([frontend.flush(), scheduler.flush()]);

  for (const what of ["one", "two", "three"]) {
    const placed = await frontend.request("fleet.m1.place", bytes(what), { deadlineMs: longMs });
    t.equal(placed.ok && text(placed.value), what);
  }
  const failed = await frontend.request("fleet.m2.place", bytes("?"), { deadlineMs: longMs });
  t.match(failed, { ok: false, error: { code: "BATON_BUS_HANDLER_FAILED" } });
  const nobody = await frontend.request("fleet.m3.place", bytes("?"), { deadlineMs: longMs });
  t.match(nobody, { ok: false, error: { code: "BATON_BUS_NO_RESPONDER" } });
  t.ok(scheduler.publish("fleet.m1.view", bytes("view")).ok);
  t.ok(frontend.publish("fleet.m1.outcome", bytes("outcome")).ok);
  await until(() => views.length === 1 && outcomes.length === 1, "what is allowed arrives");
  t.strictSame(
    faults.splice(0).map(({ kind }) => kind),
    ["handler"],
  );

  // A scheduler's subject, as a request: it fails long before its deadline.
  const forbidden = { ok: false, error: { code: "BATON_BUS_FORBIDDEN" } };
  const faked = frontend.request("fleet.m1.view", bytes("?"), { deadlineMs: longMs });
  t.match(await faked, forbidden);
  t.match(faults, [{ kind: "forbidden", subject: "fleet.m1.view" }]);
  t.match(frontend.publish("fleet.m1.view", bytes("?")), forbidden, "remembered");
  const again = await frontend.request("fleet.m1.view", bytes("?"), { deadlineMs: longMs });
  t.match(again, forbidden);
  // As a publication it is sent, reported once, and refused from then on.
  faults.length = 0;
  t.ok(frontend.publish("fleet.m2.view", bytes("fake")).ok);
  t.ok(frontend.publish("fleet.m2.view", bytes("fake")).ok);
  await until(() => faults.length > 0, "the server has refused");
  await frontend.flush();
  t.match(faults, [{ kind: "forbidden", subject: "fleet.m2.view" }]);
  t.equal(faults.length, 1);
  t.match(frontend.publish("fleet.m2.view", bytes("fake")), forbidden);
  t.equal(frontend.stats().forbidden, 2);

  // Nobody listens where another service's answers come, or where it serves.
  faults.length = 0;
  const stolen = (): void => {
    t.fail("a message of another service arrived");
  };
  frontend.subscribe("_INBOX_scheduler.>", {}, stolen);
  scheduler.subscribe("_INBOX_frontend.>", {}, stolen);
  scheduler.subscribe(">", {}, stolen);
  frontend.subscribe("fleet.m1.outcome", { queue: "q" }, stolen);
  frontend.serve("fleet.m1.place", { queue: "q" }, () => {
    t.fail("a request for another service arrived");
    return bytes("");
  });
  await until(() => faults.length === 5, "all five are refused");
  t.ok(
    faults.every(({ kind, error }) => kind === "forbidden" && error.code === forbidden.error.code),
  );
  t.ok(frontend.publish("fleet.m1.outcome", bytes("second")).ok);
  for (const what of ["four", "five", "six", "seven"]) {
    const placed = await frontend.request("fleet.m1.place", bytes(what), { deadlineMs: longMs });
    t.equal(placed.ok && text(placed.value), what);
  }
  await until(() => outcomes.length === 2, "only the scheduler hears it");
  t.strictSame(views, ["view"], "no faked view has arrived");
}

async function testInbox(t: Test): Promise<void> {
  const server = await started(t, renderNatsAuthorization([frontendUser]));
  const faults: BusFault[] = [];
  const options = optionsOf(server.url, frontendUser, faults);
  const bus = await connected(t, { ...options, inboxPrefix: "_INBOX" });
  const answer = await bus.request("fleet.m1.place", bytes("?"), { deadlineMs: longMs });
  t.match(answer, { ok: false, error: { code: "BATON_BUS_FORBIDDEN", message: /_INBOX/ } });
  t.match(faults, [{ kind: "forbidden", subject: /^_INBOX\./ }]);
}

async function testMended(t: Test): Promise<void> {
  const poor = { ...frontendUser, publish: [], subscribe: [], inboxPrefix: "_INBOX_other" };
  const server = await started(t, renderNatsAuthorization([poor]));
  const faults: BusFault[] = [];
  const bus = await connected(t, optionsOf(server.url, frontendUser, faults));
  const views: string[] = [];
  bus.subscribe("fleet.m1.view", {}, ({ payload }) => views.push(text(payload)));
  const ask = () => bus.request("fleet.m1.place", bytes("?"), { deadlineMs: longMs });
  t.match(await ask(), { ok: false, error: { code: "BATON_BUS_FORBIDDEN" } });
  await until(() => faults.length >= 2, "inbox and subscription are refused");
  await server.restart({ config: renderNatsAuthorization([frontendUser, schedulerUser]) });
  await until(() => bus.state() === "connected" && bus.stats().disconnects === 1, "it is back");
  t.match(await ask(), { ok: false, error: { code: "BATON_BUS_NO_RESPONDER" } });
  const scheduler = await connected(t, optionsOf(server.url, schedulerUser, faults));
  await bus.flush();
  scheduler.publish("fleet.m1.view", bytes("view"));
  await until(() => views.length === 1, "the subscription is there");
}

async function testRendering(t: Test): Promise<void> {
  const awkward = `a"b\\c $HOME {x} # 'é`;
  const pair = nkeys.createUser();
  const idle = { publish: [], subscribe: [], answerSecondsMax: null };
  const users: NatsUser[] = [
    { name: "awkward user", secret: password(awkward), inboxPrefix: "_I.a", ...idle },
    {
      name: "env",
      secret: { kind: "environment", variable: "B_PASS" },
      inboxPrefix: "_I.b",
      ...idle,
    },
    {
      name: "key\nuser",
      secret: { kind: "nkey", publicKey: pair.getPublicKey() },
      inboxPrefix: "_I.c",
      ...idle,
    },
  ];
  const server = await started(t, renderNatsAuthorization(users), {
    B_PASS: '"from outside"',
  });
  const seedFile = join(folder(t), "seed");
  writeFileSync(seedFile, pair.getSeed());
  const auths = [
    { kind: "password", user: "awkward user", password: awkward },
    { kind: "password", user: "env", password: "from outside" },
    { kind: "nkey", seedFile },
  ] as const;
  for (const [index, auth] of auths.entries()) {
    const { inboxPrefix } = users[index]!;
    const bus = await connected(t, {
      url: server.url,
      name: "x",
      auth,
      inboxPrefix,
      onError: () => {},
    });
    const denied = await bus.request("anything", bytes("?"), { deadlineMs: longMs });
    t.match(
      denied,
      { ok: false, error: { code: "BATON_BUS_FORBIDDEN" } },
      "an empty list allows nothing",
    );
  }
  const render = (change: Partial<NatsUser>) => () =>
    renderNatsAuthorization([{ ...frontendUser, ...change }]);
  t.throws(render({ publish: ["a b"] }), { name: "InvariantError" });
  t.throws(render({ inboxPrefix: "_INBOX.*" }), { name: "InvariantError" });
  t.throws(render({ secret: { kind: "nkey", publicKey: "SUABC" } }), { name: "InvariantError" });
  t.throws(render({ secret: { kind: "environment", variable: "A B" } }), {
    name: "InvariantError",
  });
  t.throws(render({ secret: password("two\nlines") }), { name: "InvariantError" });
}

await runWithNats({
  "a limited user can do what the table says, and nothing else": testPermissions,
  "a service without a right on its inbox hears so at once": testInbox,
  "rights that are given later count after the reconnect": testMended,
  "awkward passwords and empty lists survive the rendering": testRendering,
});
