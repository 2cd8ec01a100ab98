import { createEngineSim, type EngineSim, parseEngineSimOptions } from "../src/index.ts";

/** A simulated engine in this process that ends with the test, and calls to it. */
export interface SimUnderTest extends EngineSim {
  readonly deaths: string[];
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Answer>;
  get(path: string): Promise<Answer>;
  ledger(): Promise<LedgerView>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests read answers freely.
  readonly json: any;
}

/** Figures by name, and the lists. */
export type LedgerView = Readonly<Record<string, number>> & {
  readonly handlesSeen: readonly { remoteRequestId: string; times: number }[];
  readonly headersSeen: readonly Readonly<Record<string, string>>[];
  readonly lastBodies: readonly { kv_transfer_params: unknown }[];
};

export async function startSim(
  t: { teardown(end: () => Promise<void>): unknown },
  ...argv: string[]
): Promise<SimUnderTest> {
  const parsed = parseEngineSimOptions(argv);
  if (!parsed.ok || parsed.value === "help") throw new Error(`bad options ${argv.join(" ")}`);
  const deaths: string[] = [];
  const sim = await createEngineSim(parsed.value, (reason) => deaths.push(reason));
  t.teardown(() => sim.stop(0));
  return {
    ...sim,
    deaths,
    post: (path, body, headers = {}) =>
      call(`${sim.url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json", ...lowerCased(headers) },
        body: typeof body === "string" ? body : JSON.stringify(body),
      }),
    get: (path) => call(`${sim.url}${path}`, {}),
    ledger: async () => (await call(`${sim.url}/sim/ledger`, {})).json,
  };
}

function lowerCased(headers: Record<string, string>): Record<string, string> {
  const pairs = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]);
  return Object.fromEntries(pairs);
}

async function call(url: string, init: RequestInit): Promise<Answer> {
  const response = await fetch(url, init);
  const text = await response.text();
  let json: unknown = null;
  try {
    json = JSON.parse(text);
  } catch {
    // Streams, metrics and faulty answers are not JSON.
  }
  return { status: response.status, headers: response.headers, text, json };
}

/** Looks again and again until `holds`; throws with `what` when the deadline has passed. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  deadlineMs = 10_000,
): Promise<void> {
  const endMs = performance.now() + deadlineMs;
  while (!(await holds())) {
    if (performance.now() > endMs) throw new Error(`not in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

export function prompt(seed: number, length: number): number[] {
  return Array.from({ length }, (_, at) => (seed * 7919 + at * 31) % 150_000);
}

/** As a router sends it on the prefill leg. */
export const keepForRemote = {
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
  remote_host: null,
  remote_port: null,
};
