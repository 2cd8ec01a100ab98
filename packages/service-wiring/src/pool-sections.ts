import { connectorNames } from "@baton/connectors";
import { engineProfiles, profileDefault } from "@baton/perf-model";
import { policies } from "@baton/placement";
import type { PoolSettings, WorkerSettings } from "@baton/scheduler-shell";
import { type Frozen, field, hostSections } from "@baton/service-host";
import { z } from "zod";
import { busSection } from "./bus-section.ts";
import { engineSection } from "./engine-section.ts";
import { uniqueMembers } from "./unique-members.ts";

const zmqAddress = (description: string) =>
  z
    .string()
    .regex(/^(?:tcp:\/\/\S+:\d{1,5}|ipc:\/\/\S+)$/)
    .meta({ description, allowed: "a ZeroMQ address, tcp://HOST:PORT or ipc://PATH" });

const kvEvents = z
  .union([
    z.enum(["auto", "off"]),
    z.strictObject({
      endpoint: zmqAddress("PUB endpoint, such as tcp://10.0.0.1:5557."),
      replayEndpoint: zmqAddress("ROUTER endpoint for replay; null when the engine has none.")
        .nullable()
        .default(null),
    }),
  ])
  .default("auto");

const worker = z.strictObject({
  id: z
    .string()
    .regex(/^[A-Za-z0-9._-]{1,128}$/)
    .meta({
      description: "Name, unique in the pool.",
      allowed: "letters, digits, dot, dash and underscore",
    }),
  url: field.url({ schemes: ["http", "https"], description: "Where the engine listens." }),
  role: field
    .choice(["pool", "both"], {
      description:
        "pool: as the scheduler's pool. both: prefills and decodes, nothing is transferred.",
    })
    .default("pool"),
  dialect: field
    .choice(["vllm", "sglang", "trtllm"], { description: "Kind of engine." })
    .default("vllm"),
  connector: field
    .choice(connectorNames as [string, ...string[]], {
      description: "P/D transfer protocol that the engine is started with.",
    })
    .default("nixl-pull"),
  kvEvents: kvEvents.meta({
    description:
      "auto asks the engine (GET /kv_event_sources); off; or endpoint and replayEndpoint.",
  }),
});

/** What both schedulers' schemas share. */
export function poolSections(defaults: { readonly adminPort: number }) {
  return {
    model: field.text({
      description: "Model name, as the engines serve it (--served-model-name).",
    }),
    bus: busSection(),
    workers: z
      .array(worker)
      .min(1)
      .superRefine(uniqueMembers("workers", "id"))
      .meta({ description: "Workers of the pool: id, url, role, dialect, connector, kvEvents." }),
    placement: z.strictObject({
      policy: field
        .choice(policies as ["cost", "round-robin"], {
          description:
            "cost: least predicted time. round-robin: a yardstick that knows only who is up.",
        })
        .default("cost"),
      profile: field
        .choice(Object.keys(engineProfiles) as [string, ...string[]], {
          description: "Timing profile that seeds the estimates; completions correct it.",
        })
        .default(profileDefault),
      decisionsKept: field
        .integer({ min: 1, max: 10_000_000, description: "Newest decision records in memory." })
        .default(20_000),
    }),
    engine: z.strictObject({
      ...engineSection(),
      pollIntervalMs: field
        .durationMs({ min: 50, description: "Time between two rounds of health and metrics." })
        .default(1_000),
      pollTimeoutMs: field
        .durationMs({ min: 10, description: "Longest wait for one answer of a round." })
        .default(2_000),
    }),
    ...hostSections(defaults),
  };
}

const poolSchema = z.strictObject(poolSections({ adminPort: 0 }));

export type PoolConfig = Frozen<z.infer<typeof poolSchema>>;

/** The pool part of a scheduler's settings. */
export function poolSettingsOf(
  config: PoolConfig,
  pool: "prefill" | "decode",
  schedulerId: string,
): PoolSettings {
  return {
    model: config.model,
    schedulerId,
    workers: config.workers.map((each): WorkerSettings => {
      const { id, url, role, dialect, connector, kvEvents } = each;
      return {
        workerId: id,
        url: url.replace(/\/+$/, ""),
        role: role === "both" ? "both" : pool,
        dialect,
        connector: role === "both" ? "none" : connector,
        kvEvents:
          typeof kvEvents === "string" ? { kind: kvEvents } : { kind: "endpoint", ...kvEvents },
      };
    }),
    pollIntervalMs: config.engine.pollIntervalMs,
    pollTimeoutMs: config.engine.pollTimeoutMs,
    decisionsKept: config.placement.decisionsKept,
  };
}
