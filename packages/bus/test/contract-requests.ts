import fc from "fast-check";
import type { Test } from "tap";
import type { BusFault } from "../src/index.ts";
import { bytes, freshSubject, type Harness, longMs, text, until } from "./harness.ts";

export function testRequests(t: Test, harness: Harness): void {
  t.test("a request comes back with every byte as it was sent", async (t) => {
    const [server, client] = await Promise.all([harness.connect(), harness.connect()]);
    t.teardown(() => Promise.all([server.drain(), client.drain()]));
    const subject = freshSubject();
    server.serve(subject, { queue: "q" }, (message) => message.payload);
    await server.flush();
    const echo = async (payload: Uint8Array): Promise<void> => {
      const answer = await client.request(subject, payload, { deadlineMs: longMs });
      t.strictSame(answer, { ok: true, value: payload });
    };
    await echo(new Uint8Array(0));
    await echo(Uint8Array.from({ length: 256 }, (_, index) => index));
    await echo(new Uint8Array(client.maxPayloadBytes).fill(13));
    const payloads = fc.uint8Array({ maxLength: 3000 });
    await fc.assert(fc.asyncProperty(payloads, echo), { numRuns: 50 });
  });

  t.test("bytes belong to whoever has them: nobody sees another's changes", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    const answer = bytes("answer");
    bus.serve(subject, { queue: "q" }, (message) => {
      const seen = text(message.payload);
      message.payload.fill(0);
      queueMicrotask(() => answer.fill(0));
      return seen === "asked" ? answer : bytes(`saw ${seen}`);
    });
    await bus.flush();
    const sent = Buffer.from("asked");
    const asked = bus.request(subject, sent, { deadlineMs: longMs });
    sent.fill(0);
    const got = await asked;
    t.equal(got.ok && text(got.value), "answer");
    t.equal(got.ok && got.value.constructor, Uint8Array, "not a Buffer, whose slice shares");
    t.strictSame([...sent], [0, 0, 0, 0, 0]);
  });

  t.test("a deadline that passes is an outcome, and the late answer goes nowhere", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    const answers: (() => void)[] = [];
    bus.serve(subject, { queue: "q" }, ({ payload }) => {
      const { promise, resolve } = Promise.withResolvers<Uint8Array>();
      answers.push(() => resolve(payload));
      return promise;
    });
    await bus.flush();
    const late = await bus.request(subject, bytes("late"), { deadlineMs: 20 });
    t.match(late, { ok: false, error: { code: "BATON_BUS_DEADLINE" } });
    t.equal(bus.stats().requestsPending, 0);
    await until(() => answers.length === 1, "the request reached its handler");
    const next = bus.request(subject, bytes("next"), { deadlineMs: longMs });
    await until(() => answers.length === 2, "the next request reached its handler");
    for (const answer of answers) answer();
    const got = await next;
    t.equal(got.ok && text(got.value), "next");
  });

  t.test("a request without time left is not sent", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    const asked: string[] = [];
    bus.serve(subject, { queue: "q" }, ({ payload }) => {
      asked.push(text(payload));
      return payload;
    });
    await bus.flush();
    for (const deadlineMs of [0, -5]) {
      const answer = await bus.request(subject, bytes("none left"), { deadlineMs });
      t.match(answer, { ok: false, error: { code: "BATON_BUS_DEADLINE" } });
    }
    await bus.request(subject, bytes("fence"), { deadlineMs: longMs });
    t.strictSame(asked, ["fence"]);
  });

  t.test("without anybody there the answer is 'no responder', at once", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    const answer = await bus.request(subject, bytes("?"), { deadlineMs: longMs });
    t.match(answer, { ok: false, error: { code: "BATON_BUS_NO_RESPONDER" } });
    t.match(!answer.ok && answer.error.message, subject);
  });

  t.test("a handler that fails tells the requester, and goes on serving", async (t) => {
    const faults: BusFault[] = [];
    const onError = (fault: BusFault): unknown => faults.push(fault);
    const server = await harness.connect({ name: "the-scheduler", onError });
    const client = await harness.connect();
    t.teardown(() => Promise.all([server.drain(), client.drain()]));
    const subject = freshSubject();
    const handlers: Record<string, () => Uint8Array | Promise<Uint8Array>> = {
      throws: () => {
        throw new Error("broken\r\nHeader: é");
      },
      rejects: () => Promise.reject(new Error("out of luck")),
      answersNothing: () => undefined as unknown as Uint8Array,
      answersTooMuch: () => new Uint8Array(server.maxPayloadBytes + 1),
      answersTooMuchLater: () => Promise.resolve(new Uint8Array(server.maxPayloadBytes + 1)),
    };
    server.serve(subject, { queue: "q" }, ({ payload }) => handlers[text(payload)]!());
    await server.flush();
    const expected = ["broken", "out of luck", "not a Uint8Array", "over the bus", "over the bus"];
    for (const [index, name] of Object.keys(handlers).entries()) {
      const answer = await client.request(subject, bytes(name), { deadlineMs: longMs });
      t.match(answer, { ok: false, error: { code: "BATON_BUS_HANDLER_FAILED" } }, name);
      const message = answer.ok ? "" : answer.error.message;
      t.match(message, "the-scheduler", name);
      t.match(message, expected[index]!, name);
      t.match(faults[index], { kind: "handler", subject }, name);
    }
    t.match(faults[0]?.thrown, new Error("broken\r\nHeader: é"));
    t.equal(server.stats().handlersFailed, expected.length);
    handlers["works"] = () => bytes("yes");
    const answer = await client.request(subject, bytes("works"), { deadlineMs: longMs });
    t.equal(answer.ok && text(answer.value), "yes");
  });

  t.test("what is over the limit is refused at once, and not a byte is sent", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    const sizes: number[] = [];
    bus.serve(subject, { queue: "q" }, ({ payload }) => {
      sizes.push(payload.length);
      return bytes("ok");
    });
    bus.subscribe(subject, {}, ({ payload }) => sizes.push(payload.length));
    await bus.flush();
    const tooMuch = new Uint8Array(bus.maxPayloadBytes + 1);
    const expected = { ok: false, error: { code: "BATON_BUS_PAYLOAD_TOO_LARGE" } };
    t.match(await bus.request(subject, tooMuch, { deadlineMs: longMs }), expected);
    t.match(bus.publish(subject, tooMuch), expected);
    await bus.request(subject, bytes("fence"), { deadlineMs: longMs });
    t.strictSame(sizes, [5]);
    t.equal(bus.state(), "connected");
  });

  t.test("servers of one queue share the requests, each answered once", async (t) => {
    const names = ["a", "b", "c"];
    const servers = await Promise.all(names.map((name) => harness.connect({ name })));
    const client = await harness.connect();
    t.teardown(() => Promise.all([...servers, client].map((bus) => bus.drain())));
    const subject = freshSubject();
    const counts = new Map<string, number>();
    servers.forEach((server, index) => {
      const name = names[index]!;
      server.serve(subject, { queue: "q" }, () => {
        counts.set(name, (counts.get(name) ?? 0) + 1);
        return bytes(name);
      });
    });
    await Promise.all(servers.map((server) => server.flush()));
    const one = (): Promise<unknown> =>
      client.request(subject, bytes("?"), { deadlineMs: longMs }).then((got) => t.ok(got.ok));
    await Promise.all(Array.from({ length: 90 }, one));
    t.equal(
      [...counts.values()].reduce((sum, count) => sum + count, 0),
      90,
    );
    t.equal(counts.size, 3, "each had some");
  });

  t.test("a server with too many requests waiting refuses the next at once", async (t) => {
    const server = await harness.connect({ name: "busy", limits: { servedRequestsMax: 2 } });
    const client = await harness.connect();
    t.teardown(() => Promise.all([server.drain(), client.drain()]));
    const subject = freshSubject();
    const answers: (() => void)[] = [];
    server.serve(subject, { queue: "q" }, ({ payload }) => {
      const { promise, resolve } = Promise.withResolvers<Uint8Array>();
      answers.push(() => resolve(payload));
      return promise;
    });
    await server.flush();
    const ask = () => client.request(subject, bytes("?"), { deadlineMs: longMs });
    const taken = [ask(), ask()];
    const refused = await ask();
    t.match(refused, { ok: false, error: { code: "BATON_SATURATED", message: /busy/ } });
    t.equal(server.stats().requestsRefused, 1);
    await until(() => answers.length === 2, "both handlers run");
    for (const answer of answers) answer();
    for (const answer of await Promise.all(taken)) t.ok(answer.ok);
    const again = ask();
    await until(() => answers.length === 3, "there is room again");
    answers[2]!();
    t.ok((await again).ok);
  });

  t.test("a client has a bounded number of requests out", async (t) => {
    const bus = await harness.connect({ limits: { requestsMax: 3 } });
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    bus.serve(subject, { queue: "q" }, ({ payload }) => payload);
    await bus.flush();
    const ask = () => bus.request(subject, bytes("?"), { deadlineMs: longMs });
    const all = await Promise.all([ask(), ask(), ask(), ask()]);
    t.strictSame(
      all.map((answer) => (answer.ok ? "answered" : answer.error.code)),
      ["answered", "answered", "answered", "BATON_SATURATED"],
    );
    t.ok((await ask()).ok);
  });

  t.test("requests one after the other leave the event loop its turns", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    bus.serve(subject, { queue: "q" }, ({ payload }) => payload);
    await bus.flush();
    let isTurned = false;
    setImmediate(() => {
      isTurned = true;
    });
    let asked = 0;
    for (; !isTurned && asked < 100_000; asked++) {
      await bus.request(subject, bytes("?"), { deadlineMs: longMs });
    }
    t.ok(isTurned, `after ${asked} requests`);
  });

  t.test("subjects that cannot be sent to or listened on are programmer errors", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    for (const subject of ["", "a b", "a..b", ".a", "a.", "a.*", "a.>", "a\r\nPUB b 0", "a*"]) {
      t.throws(() => bus.publish(subject, bytes("?")), { name: "InvariantError" }, subject);
      t.throws(() => bus.request(subject, bytes("?"), { deadlineMs: 1 }), subject);
    }
    for (const subject of ["", "a b", "a..b", "a.>.b", ">.a", "a*.b"]) {
      t.throws(() => bus.subscribe(subject, {}, () => {}), { name: "InvariantError" }, subject);
      t.throws(() => bus.serve(subject, { queue: "q" }, ({ payload }) => payload), subject);
    }
    t.throws(() => bus.subscribe("a", { queue: "q q" }, () => {}), { name: "InvariantError" });
  });
}
