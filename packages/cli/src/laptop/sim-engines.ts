import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";

export interface SimEngine {
  readonly workerId: string;
  readonly role: "prefill" | "decode";
  readonly url: string;
  readonly pid: number;
  readonly child: ChildProcess;
}

export interface SimEngineOptions {
  readonly prefill: number;
  readonly decode: number;
  readonly model: string;
  readonly speed: number;
  /** Null takes the profile's. */
  readonly cacheTokens: number | null;
  readonly args: readonly string[];
}

const readyMsMax = 30_000;
const stopMsMax = 4_000;

/** Starts the engines as processes; if one does not come up, none is left. */
export async function startSimEngines(
  options: SimEngineOptions,
): Promise<Outcome<SimEngine[], BatonError>> {
  const roles = [
    ...Array.from({ length: options.prefill }, (_, at) => ({
      role: "prefill" as const,
      workerId: `p${at}`,
    })),
    ...Array.from({ length: options.decode }, (_, at) => ({
      role: "decode" as const,
      workerId: `d${at}`,
    })),
  ];
  const started = await Promise.all(roles.map((each) => startOne(each, options)));
  const engines = started.flatMap((each) => (each.ok ? [each.value] : []));
  const failed = started.find((each) => !each.ok);
  if (failed === undefined || failed.ok) return ok(engines);
  await stopSimEngines(engines);
  return failed;
}

/** SIGTERM, then after a while SIGKILL. */
export async function stopSimEngines(engines: readonly SimEngine[]): Promise<void> {
  await Promise.all(engines.map(({ child }) => stopOne(child)));
}

async function startOne(
  which: { readonly role: "prefill" | "decode"; readonly workerId: string },
  options: SimEngineOptions,
): Promise<Outcome<SimEngine, BatonError>> {
  const main = new URL(import.meta.resolve("@baton/engine-sim").replace("index.ts", "main.ts"));
  const args = [
    "--role",
    which.role,
    "--model",
    options.model,
    "--speed",
    String(options.speed),
    ...(options.cacheTokens === null ? [] : ["--cache-tokens", String(options.cacheTokens)]),
    "--die-with-parent",
    ...options.args,
  ];
  // Its standard input is our pipe: it ends with us, however we end.
  const child = spawn(process.execPath, [main.pathname.replaceAll("%20", " "), ...args], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, NODE_CHANNEL_FD: undefined },
    detached: true,
  });
  let complaints = "";
  child.stderr.on("data", (bytes: Buffer) => {
    complaints = (complaints + bytes.toString()).slice(-4_096);
  });
  child.stdin.on("error", () => {}); // it may end before we do
  const ready = await readyLine(child);
  if (ready === null) {
    await stopOne(child);
    const message = `simulated engine ${which.workerId} did not come up`;
    return fail(batonError("BATON_ENGINE_UNREACHABLE", message, { cause: complaints.trim() }));
  }
  return ok({ ...which, url: ready.url, pid: child.pid!, child });
}

async function readyLine(child: ChildProcess): Promise<{ url: string } | null> {
  const lines = createInterface({ input: child.stdout! });
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(null), readyMsMax);
    child.once("exit", () => resolve(null));
    child.once("error", () => resolve(null));
    lines.once("line", (line) => {
      clearTimeout(timer);
      try {
        resolve(JSON.parse(line) as { url: string });
      } catch {
        resolve(null);
      }
    });
  }).then((value) => {
    lines.on("line", () => {}); // keep its pipe empty
    return value as { url: string } | null;
  });
}

async function stopOne(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), stopMsMax);
  await ended;
  clearTimeout(timer);
}
