/**
 * Run as a process of its own: everything is opened, used, closed in mid-stream, and it must end.
 */
import { encodeKvBatch } from "@baton/kv-events";
import { createKvPublisher, createZmqKvEventSource } from "@baton/kv-feed";
import { MemoryLogger } from "@baton/ports/testing";

const logger = new MemoryLogger();
const publisher = await createKvPublisher({
  endpoint: "tcp://127.0.0.1:0",
  replayEndpoint: "tcp://127.0.0.1:0",
  topic: "",
  logger,
});
const payload = encodeKvBatch({ engineTimeS: 1, dpRank: 0, events: [], form: "map" });
for (let count = 0; count < 3000; count++) publisher.publish(payload);
const source = createZmqKvEventSource({
  clock: { nowMs: () => performance.now(), wallMs: () => Date.now() },
  timers: {
    after(delayMs, callback) {
      const timer = setTimeout(callback, delayMs);
      return { cancel: () => clearTimeout(timer) };
    },
    every: () => {
      throw new Error("no feed needs an interval");
    },
  },
  logger,
});

let batches = 0;
await new Promise<void>((resolve) => {
  const sink = {
    onBatch: () => {
      batches += 1;
      if (batches === 1000) resolve();
    },
    onReset: () => {},
    onState: () => {},
  };
  const { endpoint, replayEndpoint } = publisher;
  source.open({ workerId: "w", endpoint, replayEndpoint }, sink);
  // One that never connects, one that asks a replay nobody serves, one that is closed at once.
  source.open({ workerId: "x", endpoint: "tcp://127.0.0.1:1", replayEndpoint }, sink);
  source.open({ workerId: "y", endpoint, replayEndpoint: "tcp://127.0.0.1:1" }, sink);
  source.open({ workerId: "z", endpoint, replayEndpoint }, sink).close();
});
const seen = batches;
await source.close();
if (batches !== seen) throw new Error("a batch after the close");
publisher.publish(payload);
await publisher.close();
