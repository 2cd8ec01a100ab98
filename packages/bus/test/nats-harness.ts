import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t, { type Test } from "tap";
import { connectNatsBus, type NatsBusOptions, type ObservedBus } from "../src/index.ts";
import { type NatsServer, type NatsServerOptions, startNatsServer } from "../src/testing.ts";

/** Runs the tests, or skips them all where there is no nats-server. */
export async function runWithNats(
  tests: Record<string, (t: Test) => Promise<void>>,
): Promise<void> {
  const probe = await startNatsServer();
  if (probe === null) {
    t.plan(0, "nats-server not found");
    return;
  }
  await probe.stop();
  for (const [name, test] of Object.entries(tests)) await t.test(name, test);
}

export async function started(
  t: Test,
  config: string,
  env: NatsServerOptions["env"] = {},
): Promise<NatsServer> {
  const server = (await startNatsServer({ config, env }))!;
  t.teardown(() => server.stop());
  return server;
}

export async function connected(t: Test, options: NatsBusOptions): Promise<ObservedBus> {
  const outcome = await connectNatsBus({ connectMsMax: 20_000, ...options });
  if (!outcome.ok) throw new Error(JSON.stringify(outcome.error));
  t.teardown(() => outcome.value.drain());
  return outcome.value;
}

/** Gives up after the first attempt that fails, with its cause. */
export function connectOnce(options: NatsBusOptions): ReturnType<typeof connectNatsBus> {
  const ending = new AbortController();
  const onError = (): void => ending.abort();
  return connectNatsBus({ connectMsMax: 20_000, signal: ending.signal, onError, ...options });
}

export function folder(t: Test): string {
  const path = mkdtempSync(join(tmpdir(), "baton-bus-"));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}
