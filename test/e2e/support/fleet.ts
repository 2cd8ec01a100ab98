import { type Laptop, openLaptop } from "@baton/cli";
import type { DecisionRecord } from "@baton/domain";
import type { WorkerSettings } from "@baton/scheduler-shell";
import { createLogger } from "@baton/service-host";
import type { Test } from "tap";
import {
  type Engine,
  type EngineProcess,
  type EngineSpec,
  model,
  startEngine,
  startEngineProcess,
} from "./engine.ts";
import { until } from "./until.ts";

/** Services and engines by their addresses, however they run. */
export interface Fleet<E extends Engine = Engine> {
  readonly url: string;
  readonly adminUrls: { readonly prefill: string; readonly decode: string };
  readonly engines: readonly E[];
  readonly prefillEngines: readonly E[];
  readonly decodeEngines: readonly E[];
}

export interface LaptopFleet<E extends Engine = Engine> extends Fleet<E> {
  readonly laptop: Laptop;
  /** Warnings and errors that the services logged, as JSON. */
  readonly logLines: readonly string[];
}

export interface FleetOptions {
  readonly prefill: number;
  readonly decode: number;
  readonly speed: number;
  readonly engineArgs?: readonly string[];
  readonly tokenizerMode?: "engine" | "none";
  readonly natsUrl?: string;
  /** Where the services reach an engine, when that is not its own address. */
  readonly urlFor?: (engine: Engine) => Promise<string>;
}

const drainMs = 1_000;

/** Fixes the draws that break ties, so that a run can be repeated. */
const seed = 20_26;

export const startFleet = (t: Test, options: FleetOptions): Promise<LaptopFleet> =>
  open(t, options, startEngine);

/** The same with each engine in a process of its own, to be killed. */
export const startProcessFleet = (
  t: Test,
  options: FleetOptions,
): Promise<LaptopFleet<EngineProcess>> => open(t, options, startEngineProcess);

async function open<E extends Engine>(
  t: Test,
  options: FleetOptions,
  start: (t: Test, spec: EngineSpec) => Promise<E>,
): Promise<LaptopFleet<E>> {
  const { speed, engineArgs = [], natsUrl = null, tokenizerMode = "engine" } = options;
  const args = ["--speed", String(speed), ...engineArgs];
  const ids = (role: "prefill" | "decode", count: number): EngineSpec[] =>
    Array.from({ length: count }, (_, at) => ({ workerId: `${role[0]}${at}`, role, args }));
  const specs = [...ids("prefill", options.prefill), ...ids("decode", options.decode)];
  const engines = await Promise.all(specs.map((spec) => start(t, spec)));
  const workers = await Promise.all(engines.map((each) => workerOf(each, options.urlFor)));
  const logLines: string[] = [];
  const opened = await openLaptop({
    model,
    prefillWorkers: workers.filter((each) => each.role === "prefill"),
    decodeWorkers: workers.filter((each) => each.role === "decode"),
    policy: "cost",
    speed,
    natsUrl,
    port: 0,
    adminPort: 0,
    host: "127.0.0.1",
    tokenizerMode,
    logger: createLogger({
      level: "warn",
      pretty: false,
      service: "baton",
      destination: { write: (line) => logLines.push(line) },
    }),
    seed,
  });
  if (!opened.ok) throw new Error(JSON.stringify(opened.error));
  const laptop = opened.value;
  t.teardown(() => laptop.drain(drainMs));
  const { url, adminUrls } = laptop;
  await untilReady({ url });
  return { url, adminUrls, ...pools(engines), laptop, logLines };
}

export function pools<E extends Engine>(
  engines: readonly E[],
): Pick<Fleet<E>, "engines" | "prefillEngines" | "decodeEngines"> {
  return {
    engines,
    prefillEngines: engines.filter(({ role }) => role !== "decode"),
    decodeEngines: engines.filter(({ role }) => role !== "prefill"),
  };
}

export async function untilReady({ url }: Pick<Fleet, "url">): Promise<void> {
  await until(async () => (await fetch(`${url}/ready`)).status === 200, `${url} is ready`);
}

/** The decisions about one request as the frontend gives them, those of the first attempt first. */
export async function decisionsOf(
  { url }: Pick<Fleet, "url">,
  requestId: string,
): Promise<DecisionRecord[]> {
  const answer = await fetch(`${url}/debug/decisions?request_id=${requestId}`);
  const { records } = (await answer.json()) as { records: DecisionRecord[] };
  return records.sort(
    (left, right) => left.attempt - right.attempt || (left.pool === "prefill" ? -1 : 1),
  );
}

/** Value of a term of the winner's score. */
export function winnerTerm(record: DecisionRecord, name: string): number | undefined {
  const { winner, candidates } = record;
  const found = candidates.find(({ worker }) => worker.workerId === winner?.workerId);
  return found?.terms.find((term) => term.name === name)?.value;
}

export interface WorkerState {
  readonly workerId: string;
  readonly state: string;
  readonly incarnation: string | null;
  readonly kvEvents: string;
  readonly leases: number;
}

/** What a scheduler says of its workers at this moment. */
export async function workersOf(
  { adminUrls }: Pick<Fleet, "adminUrls">,
  pool: "prefill" | "decode",
): Promise<WorkerState[]> {
  const answer = await fetch(`${adminUrls[pool]}/debug/workers`);
  return ((await answer.json()) as { workers: WorkerState[] }).workers;
}

async function workerOf(engine: Engine, urlFor: FleetOptions["urlFor"]): Promise<WorkerSettings> {
  const { workerId, role, url } = engine;
  return {
    workerId,
    role,
    url: urlFor === undefined ? url : await urlFor(engine),
    dialect: "vllm",
    connector: "nixl-pull",
    kvEvents: { kind: role === "prefill" ? "auto" : "off" },
  };
}
