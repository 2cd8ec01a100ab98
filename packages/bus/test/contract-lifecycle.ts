import type { BusState } from "@baton/ports";
import type { Test } from "tap";
import { bytes, freshSubject, type Harness, longMs, text, until } from "./harness.ts";

export function testLifecycle(t: Test, harness: Harness): void {
  t.test("a closed subscription gets nothing more, and the others go on", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    const seen: string[] = [];
    const first = bus.subscribe(subject, {}, () => {
      seen.push("first");
      first.close();
      first.close();
    });
    bus.subscribe(subject, {}, () => seen.push("second"));
    const serving = bus.serve(subject, { queue: "q" }, ({ payload }) => payload);
    await bus.flush();
    for (let index = 0; index < 5; index++) bus.publish(subject, bytes("?"));
    await until(() => seen.filter((who) => who === "second").length === 5, "all have arrived");
    t.equal(seen.filter((who) => who === "first").length, 1);
    t.ok((await bus.request(subject, bytes("?"), { deadlineMs: longMs })).ok);
    serving.close();
    serving.close();
    await bus.flush();
    // The second subscriber still listens, so this is no "no responder".
    const answer = await bus.request(subject, bytes("?"), { deadlineMs: 20 });
    t.match(answer, { ok: false, error: { code: "BATON_BUS_DEADLINE" } });
  });

  t.test("a server that closes refuses what waits and answers what runs", async (t) => {
    const [server, client] = await Promise.all([harness.connect(), harness.connect()]);
    t.teardown(() => Promise.all([server.drain(), client.drain()]));
    const subject = freshSubject();
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    const serving = server.serve(subject, { queue: "q" }, async ({ payload }) => {
      if (text(payload) === "first") serving.close();
      await gate;
      return payload;
    });
    await server.flush();
    const ask = (what: string) => client.request(subject, bytes(what), { deadlineMs: longMs });
    const [first, second] = [ask("first"), ask("second")];
    const refused = await second;
    t.notOk(refused.ok);
    open();
    const answered = await first;
    t.equal(answered.ok && text(answered.value), "first");
    t.match(await ask("third"), { ok: false, error: { code: "BATON_BUS_NO_RESPONDER" } });
  });

  t.test("drain lets handlers in flight answer and takes nothing new", async (t) => {
    const [server, client] = await Promise.all([harness.connect(), harness.connect()]);
    t.teardown(() => client.drain());
    const subject = freshSubject();
    const states: BusState[] = [];
    server.onState((state) => states.push(state));
    const published: string[] = [];
    client.subscribe(`${subject}.last`, {}, ({ payload }) => published.push(text(payload)));
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    let running = 0;
    server.serve(subject, { queue: "q" }, async ({ payload }) => {
      if (text(payload) === "probe") return payload;
      running++;
      await gate;
      server.publish(`${subject}.last`, bytes("words"));
      return payload;
    });
    await Promise.all([server.flush(), client.flush()]);
    const ask = (what: string) => client.request(subject, bytes(what), { deadlineMs: longMs });
    const inFlight = [ask("1"), ask("2"), ask("3")];
    await until(() => running === 3, "all handlers run");
    const drained = server.drain();
    t.equal(server.state(), "draining");
    const own = await server.request(subject, bytes("?"), { deadlineMs: longMs });
    t.match(own, { ok: false, error: { code: "BATON_BUS_CLOSED" } });
    // What is on its way when the drain begins is still answered; then nobody is there.
    let probed = await ask("probe");
    while (probed.ok) probed = await ask("probe");
    t.match(probed, { ok: false, error: { code: "BATON_BUS_NO_RESPONDER" } });
    open();
    for (const answer of await Promise.all(inFlight)) t.ok(answer.ok);
    await drained;
    await server.drain();
    t.strictSame(states, ["draining", "closed"]);
    await until(() => published.length === 3, "the last words arrived");
    t.match(server.publish(subject, bytes("?")), {
      ok: false,
      error: { code: "BATON_BUS_CLOSED" },
    });
    const after = await server.request(subject, bytes("?"), { deadlineMs: longMs });
    t.match(after, { ok: false, error: { code: "BATON_BUS_CLOSED" } });
    server.subscribe(subject, {}, () => {}).close();
    await server.flush();
    t.equal(client.state(), "connected");
  });

  t.test("drain fails own requests that nobody has answered", async (t) => {
    const [server, client] = await Promise.all([harness.connect(), harness.connect()]);
    t.teardown(() => server.drain());
    const subject = freshSubject();
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    server.serve(subject, { queue: "q" }, async ({ payload }) => {
      await gate;
      return payload;
    });
    await server.flush();
    const asked = client.request(subject, bytes("?"), { deadlineMs: longMs });
    await client.drain();
    t.match(await asked, { ok: false, error: { code: "BATON_BUS_CLOSED" } });
    open();
  });

  t.test("a handler that never ends is refused to its requester after drainMsMax", async (t) => {
    const server = await harness.connect({ name: "stuck", limits: { drainMsMax: 30 } });
    const client = await harness.connect();
    t.teardown(() => client.drain());
    const subject = freshSubject();
    server.serve(subject, { queue: "q" }, () => new Promise<never>(() => {}));
    await server.flush();
    const asked = client.request(subject, bytes("?"), { deadlineMs: longMs });
    await until(() => server.stats().messagesPending === 0, "the handler runs");
    await client.flush();
    await server.drain();
    const answer = await asked;
    t.notOk(answer.ok);
    t.equal(server.state(), "closed");
  });

  t.test("a lost connection fails at once what is out, and comes back by itself", async (t) => {
    const [server, client] = await Promise.all([
      harness.connect({ onError: () => {} }),
      harness.connect({ onError: () => {} }),
    ]);
    t.teardown(() => Promise.all([server.drain(), client.drain()]));
    const subject = freshSubject();
    const states: BusState[] = [];
    const watching = client.onState((state) => states.push(state));
    const received: string[] = [];
    client.subscribe(`${subject}.*`, {}, ({ payload }) => received.push(text(payload)));
    const { promise: gate, resolve: open } = Promise.withResolvers<void>();
    let running = 0;
    server.serve(subject, { queue: "q" }, async ({ payload }) => {
      running++;
      if (text(payload) === "wait") await gate;
      return payload;
    });
    await Promise.all([server.flush(), client.flush()]);
    const ask = (what: string) => client.request(subject, bytes(what), { deadlineMs: longMs });
    const inFlight = ask("wait");
    await until(() => running === 1, "the handler runs");

    await harness.interrupt();
    const closed = { ok: false, error: { code: "BATON_BUS_CLOSED" } };
    t.match(await inFlight, closed);
    await until(() => server.state() === "reconnecting", "the server knows too");
    t.equal(client.state(), "reconnecting");
    t.match(await ask("now"), closed);
    t.match(client.publish(`${subject}.x`, bytes("lost")), closed);
    const flushed = Promise.all([server.flush(), client.flush()]);
    client.subscribe(`${subject}.y`, {}, ({ payload }) => received.push(`new ${text(payload)}`));
    open();

    await harness.resume();
    await flushed;
    t.equal(client.state(), "connected");
    t.strictSame(states, ["reconnecting", "connected"]);
    t.equal(client.stats().disconnects, 1);
    const answer = await ask("again");
    t.equal(answer.ok && text(answer.value), "again");
    server.publish(`${subject}.y`, bytes("back"));
    await until(() => received.length === 2, "old and new subscriptions are there");
    t.strictSame(received.toSorted(), ["back", "new back"]);
    watching.close();
  });

  t.test("a drain goes on through a lost and a regained connection", async (t) => {
    const server = await harness.connect({ onError: () => {} });
    const subject = freshSubject();
    const states: BusState[] = [];
    server.onState((state) => states.push(state));
    const { promise: gate, resolve: open } = Promise.withResolvers<Uint8Array>();
    const { promise: called, resolve: call } = Promise.withResolvers<void>();
    server.serve(subject, { queue: "q" }, () => {
      call();
      return gate;
    });
    await server.flush();
    const asked = server.request(subject, bytes("?"), { deadlineMs: longMs });
    await called;
    const drained = server.drain();
    await harness.interrupt();
    t.match(await asked, { ok: false, error: { code: "BATON_BUS_CLOSED" } });
    t.equal(server.state(), "draining");
    await harness.resume();
    const published = () => server.publish(subject, bytes("?")).ok;
    await until(published, "the connection is back");
    open(bytes("too late"));
    await drained;
    t.strictSame(states, ["draining", "closed"]);
  });

  t.test("a bus that is drained while the connection is away closes", async (t) => {
    const bus = await harness.connect({ onError: () => {} });
    const subject = freshSubject();
    bus.subscribe(subject, {}, () => {});
    await bus.flush();
    await harness.interrupt();
    await until(() => bus.state() === "reconnecting", "the bus knows");
    const flushed = bus.flush();
    await bus.drain();
    await flushed;
    t.equal(bus.state(), "closed");
    await harness.resume();
  });
}
