import type { Test } from "tap";
import type { BusFault, SlowConsumer } from "../src/index.ts";
import { bytes, freshSubject, type Harness, longMs, text, until } from "./harness.ts";

export function testPublications(t: Test, harness: Harness): void {
  t.test("every plain subscriber gets a publication, one member of each queue does", async (t) => {
    const names = ["a", "b", "c"];
    const buses = await Promise.all(names.map((name) => harness.connect({ name })));
    const [publisher] = buses;
    t.teardown(() => Promise.all(buses.map((bus) => bus.drain())));
    const subject = freshSubject();
    const plain: string[] = [];
    const shared: string[] = [];
    buses.forEach((bus, index) => {
      bus.subscribe(subject, {}, ({ payload }) => plain.push(`${names[index]} ${text(payload)}`));
      bus.subscribe(subject, { queue: "q" }, ({ payload }) => shared.push(text(payload)));
    });
    await Promise.all(buses.map((bus) => bus.flush()));
    for (let index = 0; index < 30; index++) {
      t.ok(publisher!.publish(subject, bytes(String(index))).ok);
    }
    await until(() => plain.length >= 90 && shared.length >= 30, "all have arrived");
    const numbers = Array.from({ length: 30 }, (_, index) => String(index));
    for (const name of names) {
      const own = plain.filter((line) => line.startsWith(name));
      t.strictSame(
        own,
        numbers.map((number) => `${name} ${number}`),
      );
    }
    t.strictSame(
      shared.toSorted((left, right) => Number(left) - Number(right)),
      numbers,
    );
  });

  t.test("publications and requests of one subject and queue stay apart", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    const seen: string[] = [];
    const note = (kind: string) => (message: { payload: Uint8Array }) => {
      seen.push(`${kind} ${text(message.payload)}`);
    };
    bus.subscribe(subject, {}, note("plain"));
    bus.subscribe(subject, { queue: "q" }, note("queue"));
    bus.serve(subject, { queue: "q" }, (message) => {
      note("served")(message);
      return message.payload;
    });
    await bus.flush();
    for (let index = 0; index < 10; index++) {
      bus.publish(subject, bytes("publication"));
      t.ok((await bus.request(subject, bytes("request"), { deadlineMs: longMs })).ok);
    }
    await until(() => seen.length >= 30, "all have arrived");
    const count = (line: string) => seen.filter((each) => each === line).length;
    t.equal(count("plain publication"), 10);
    t.equal(count("queue publication"), 10);
    t.equal(count("served request"), 10);
    t.equal(seen.length, 30);
  });

  t.test("a subscriber alone does not answer: the request ends by its deadline", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    bus.subscribe(subject, {}, () => t.fail("a request reached a subscriber"));
    await bus.flush();
    const answer = await bus.request(subject, bytes("?"), { deadlineMs: 20 });
    t.match(answer, { ok: false, error: { code: "BATON_BUS_DEADLINE" } });
  });

  t.test("`*` stands for one token and `>` for one or more", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const root = freshSubject();
    const got: Record<string, string[]> = {};
    for (const pattern of ["a.b", "*.b", "a.*", "*.*", ">", "a.>", "a.b.>", "*.b.c", "a.*.c"]) {
      const list: string[] = [];
      got[pattern] = list;
      bus.subscribe(`${root}.${pattern}`, {}, ({ subject, payload }) => {
        t.equal(subject, text(payload));
        list.push(subject.slice(root.length + 1));
      });
    }
    bus.serve(`${root}.*`, { queue: "q" }, ({ subject }) => bytes(subject));
    await bus.flush();
    for (const subject of ["a", "a.b", "x.b", "a.x", "a.b.c", "a.x.c", "x.b.c.d"]) {
      bus.publish(`${root}.${subject}`, bytes(`${root}.${subject}`));
    }
    await until(() => got[">"]!.length === 7, "all have arrived");
    t.strictSame(got, {
      "a.b": ["a.b"],
      "*.b": ["a.b", "x.b"],
      "a.*": ["a.b", "a.x"],
      "*.*": ["a.b", "x.b", "a.x"],
      ">": ["a", "a.b", "x.b", "a.x", "a.b.c", "a.x.c", "x.b.c.d"],
      "a.>": ["a.b", "a.x", "a.b.c", "a.x.c"],
      "a.b.>": ["a.b.c"],
      "*.b.c": ["a.b.c"],
      "a.*.c": ["a.b.c", "a.x.c"],
    });
    const answer = await bus.request(`${root}.y`, bytes("?"), { deadlineMs: longMs });
    t.equal(answer.ok && text(answer.value), `${root}.y`);
  });

  t.test("a publisher's messages keep their order, across subjects too", async (t) => {
    const [publisher, other, receiver] = await Promise.all([
      harness.connect(),
      harness.connect(),
      harness.connect(),
    ]);
    t.teardown(() => Promise.all([publisher, other, receiver].map((bus) => bus.drain())));
    const subject = freshSubject();
    const seen: Record<string, number[]> = { one: [], two: [] };
    const note = ({ payload }: { payload: Uint8Array }): Uint8Array => {
      const [who, number] = text(payload).split(" ");
      seen[who!]!.push(Number(number));
      return payload;
    };
    receiver.subscribe(`${subject}.a`, {}, note);
    receiver.subscribe(`${subject}.b`, {}, note);
    receiver.serve(`${subject}.c`, { queue: "q" }, note);
    await receiver.flush();
    const all: Promise<unknown>[] = [];
    for (let index = 0; index < 2000; index++) {
      for (const [bus, who] of [
        [publisher, "one"],
        [other, "two"],
      ] as const) {
        const payload = bytes(`${who} ${index}`);
        if (index % 3 === 2) {
          all.push(bus.request(`${subject}.c`, payload, { deadlineMs: longMs }));
        } else bus.publish(`${subject}.${index % 3 === 0 ? "a" : "b"}`, payload);
      }
    }
    await Promise.all(all);
    const count = () => seen["one"]!.length + seen["two"]!.length;
    await until(() => count() >= 4000, "all have arrived");
    const numbers = Array.from({ length: 2000 }, (_, index) => index);
    t.strictSame(seen, { one: numbers, two: numbers });
  });

  t.test("nothing is delivered inside the sender's call", async (t) => {
    const bus = await harness.connect();
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    let isInside = false;
    let received = 0;
    const note = (): Uint8Array => {
      t.notOk(isInside);
      received++;
      return bytes("");
    };
    bus.subscribe(subject, {}, note);
    bus.serve(subject, { queue: "q" }, note);
    await bus.flush();
    isInside = true;
    bus.publish(subject, bytes("?"));
    const answer = bus.request(subject, bytes("?"), { deadlineMs: longMs });
    isInside = false;
    await answer;
    await until(() => received === 2, "both have arrived");
  });

  t.test("a slow consumer loses its oldest messages, counted; nobody waits for it", async (t) => {
    const notices: SlowConsumer[] = [];
    const receiver = await harness.connect({
      limits: { pendingMessagesMax: 10 },
      onSlowConsumer: (notice) => notices.push(notice),
    });
    const publisher = await harness.connect();
    t.teardown(() => Promise.all([receiver.drain(), publisher.drain()]));
    const subject = freshSubject();
    const seen: number[] = [];
    receiver.subscribe(subject, {}, ({ payload }) => seen.push(Number(text(payload))));
    await receiver.flush();
    const burst = async (from: number, to: number): Promise<void> => {
      // One call after the other without a pause: more than the receiver can hold at once.
      for (let index = from; index < to; index++) publisher.publish(subject, bytes(`${index}`));
      await until(() => seen.at(-1) === to - 1, "the newest has arrived");
    };
    await burst(0, 5000);
    const dropped = receiver.stats().messagesDropped;
    t.ok(dropped > 0);
    t.equal(seen.length + dropped, 5000, "each was delivered or counted");
    t.strictSame(
      seen,
      seen.toSorted((left, right) => left - right),
    );
    t.ok(notices.length >= 1);
    t.match(notices[0], { subject, queue: null });
    t.ok(notices.length <= dropped, "a notice per fall, not per message");
    await burst(5000, 5005);
    t.strictSame(seen.slice(-5), [5000, 5001, 5002, 5003, 5004]);
    t.equal(receiver.stats().messagesDropped, dropped, "in time again");
    const before = notices.length;
    await burst(5005, 10_000);
    t.ok(notices.length > before, "the next fall is said again");
    t.equal(seen.length + receiver.stats().messagesDropped, 10_000);
  });

  t.test("a subscription holds a bounded number of bytes, and at least one message", async (t) => {
    const receiver = await harness.connect({
      limits: { pendingBytesMax: 1000 },
      onSlowConsumer: () => {},
    });
    t.teardown(() => receiver.drain());
    const subject = freshSubject();
    const sizes: number[] = [];
    receiver.subscribe(subject, {}, ({ payload }) => sizes.push(payload.length));
    await receiver.flush();
    for (const size of [400, 400, 400, 5000, 7]) receiver.publish(subject, new Uint8Array(size));
    await until(() => sizes.at(-1) === 7, "the newest has arrived");
    t.equal(sizes.length + receiver.stats().messagesDropped, 5);
    receiver.publish(subject, new Uint8Array(5000));
    await until(() => sizes.at(-1) === 5000, "one over the bound comes alone");
  });

  t.test("a listener that throws is reported and gets the next message", async (t) => {
    const faults: BusFault[] = [];
    const bus = await harness.connect({ onError: (fault) => faults.push(fault) });
    t.teardown(() => bus.drain());
    const subject = freshSubject();
    const seen: string[] = [];
    bus.subscribe(subject, {}, ({ payload }) => {
      seen.push(text(payload));
      if (seen.length === 1) throw new Error("cannot read this");
    });
    await bus.flush();
    bus.publish(subject, bytes("bad"));
    bus.publish(subject, bytes("good"));
    await until(() => seen.length === 2, "the second has arrived");
    t.match(faults, [{ kind: "listener", subject, error: { cause: "cannot read this" } }]);
    t.equal(bus.stats().listenersFailed, 1);
  });
}
