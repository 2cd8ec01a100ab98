import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createEngineSim, parseEngineSimOptions } from "@baton/engine-sim";
import type { Test } from "tap";

export const model = "sim-model";
export const blockTokens = 16;

/** A simulated engine, in this process or as one of its own. */
export interface Engine {
  readonly workerId: string;
  readonly role: "prefill" | "decode" | "both";
  readonly url: string;
}

/** One that can be ended as a crash would, and started again on its port. */
export interface EngineProcess extends Engine {
  /** SIGKILL; resolves when the process is gone. */
  kill(): Promise<void>;
  /** A new process on the same HTTP port. */
  restart(): Promise<void>;
}

export type EngineSpec = Pick<Engine, "workerId" | "role"> & { readonly args: readonly string[] };

/** Figures of an engine's ledger that these tests read. */
export interface LedgerView {
  readonly blocksHeld: number;
  readonly blocksUsed: number;
  readonly requestsRunning: number;
  readonly requestsWaiting: number;
  readonly handlesIssued: number;
  readonly handlesSeen: readonly { readonly remoteRequestId: string; readonly times: number }[];
  readonly handlesExpired: number;
  readonly tokensComputed: number;
  readonly aborts: number;
  readonly finished: number;
  /** Of the last 100 requests, newest first. */
  readonly headersSeen: readonly Readonly<Record<string, string>>[];
  readonly lastBodies: readonly {
    readonly path: string;
    readonly kv_transfer_params: unknown;
    readonly max_tokens: unknown;
    readonly stream: unknown;
  }[];
}

/** An engine inside this process: cheap, and it ends with the test. */
export async function startEngine(t: Test, spec: EngineSpec): Promise<Engine> {
  const parsed = parseEngineSimOptions(argvOf(spec));
  if (!parsed.ok || parsed.value === "help") throw new Error(`bad options: ${argvOf(spec)}`);
  const sim = await createEngineSim(parsed.value, (reason) => {
    t.fail(`${spec.workerId} would have died: ${reason}`);
  });
  t.teardown(() => sim.stop(0));
  return { ...spec, url: sim.url };
}

/** An engine as a process of its own. */
export async function startEngineProcess(t: Test, spec: EngineSpec): Promise<EngineProcess> {
  let child: ChildProcess | null = null;
  const start = async (port: string): Promise<string> => {
    child = spawnEngine([...argvOf(spec), "--port", port]);
    return readyUrl(child, spec.workerId);
  };
  const kill = async (): Promise<void> => {
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  };
  t.teardown(kill);
  const url = await start("0");
  const restart = async (): Promise<void> => {
    await kill();
    await start(new URL(url).port);
  };
  return { ...spec, url, kill, restart };
}

export async function ledgerOf({ url }: Pick<Engine, "url">): Promise<LedgerView> {
  return (await (await fetch(`${url}/sim/ledger`)).json()) as LedgerView;
}

/** Breaks what the body names; see engine-sim's faults. */
export async function setFaults(
  { url }: Pick<Engine, "url">,
  faults: Readonly<Record<string, number | boolean>>,
): Promise<void> {
  const answer = await fetch(`${url}/sim/faults`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(faults),
  });
  if (answer.status !== 200) throw new Error(await answer.text());
}

export async function faultsOf({
  url,
}: Pick<Engine, "url">): Promise<Readonly<Record<string, number | boolean>>> {
  const answer = await fetch(`${url}/sim/faults`);
  return (await answer.json()) as Record<string, number | boolean>;
}

function argvOf({ role, args }: EngineSpec): string[] {
  return ["--role", role, "--model", model, "--block-size", String(blockTokens), ...args];
}

function spawnEngine(argv: readonly string[]): ChildProcess {
  const main = fileURLToPath(import.meta.resolve("@baton/engine-sim").replace("index", "main"));
  // Its standard input is our pipe, so that it ends with this process whatever happens.
  return spawn(process.execPath, [main, ...argv, "--die-with-parent"], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, NODE_CHANNEL_FD: undefined },
  });
}

async function readyUrl(child: ChildProcess, workerId: string): Promise<string> {
  child.stdin?.on("error", () => {}); // it may end before we do
  const lines = createInterface({ input: child.stdout! });
  const gone = once(child, "exit").then(() => null);
  const line = await Promise.race([once(lines, "line"), gone]);
  if (line === null) throw new Error(`engine ${workerId} ended before it was ready`);
  return (JSON.parse(String(line[0])) as { url: string }).url;
}
