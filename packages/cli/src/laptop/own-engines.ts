import { type BatonError, batonError } from "@baton/domain";
import { createEngineClient } from "@baton/engines";
import { fail, type Outcome, ok } from "@baton/kit";
import type { EngineClient, Logger } from "@baton/ports";
import type { WorkerSettings } from "@baton/scheduler-shell";
import { systemClock } from "@baton/service-host";
import { probeWorker, readKvEventSources } from "@baton/worker-watch";

export interface OwnEngines {
  readonly model: string;
  readonly prefillWorkers: readonly WorkerSettings[];
  readonly decodeWorkers: readonly WorkerSettings[];
  /** What was found on each, and what will not work, for a person. */
  readonly lines: readonly string[];
}

interface Asked {
  readonly workerId: string;
  readonly url: string;
  readonly role: "prefill" | "decode" | "both";
  readonly kvEvents: string | null;
}

interface Found {
  readonly models: readonly string[];
  readonly settings: WorkerSettings;
  readonly lines: readonly string[];
}

const probeTimeoutMs = 5_000;

/**
 * Asks each engine what it is. An engine that does not answer is an error here, at the start, where
 * somebody is looking. Roles of one URL given twice make one aggregated engine.
 */
export async function describeOwnEngines(
  given: {
    readonly prefillUrls: readonly string[];
    readonly decodeUrls: readonly string[];
    readonly kvEvents: readonly string[];
    readonly model: string | null;
  },
  logger: Logger,
): Promise<Outcome<OwnEngines, BatonError>> {
  const client = createEngineClient({
    credentials: () => null,
    connectTimeoutMs: 2_000,
    keepAliveIdleMs: 4_000,
    connectionsPerWorkerMax: 16,
    logger,
  });
  try {
    const asked = roles(given);
    const found = await Promise.all(asked.map((each) => describe(each, client)));
    const silent = found.find((each) => !each.ok);
    if (silent !== undefined && !silent.ok) return silent;
    const answers = found.flatMap((each) => (each.ok ? [each.value] : []));
    const model = chooseModel(given.model, answers);
    if (!model.ok) return model;
    const workers = answers.map((each) => each.settings);
    return ok({
      model: model.value,
      prefillWorkers: workers.filter((each) => each.role !== "decode"),
      decodeWorkers: workers.filter((each) => each.role !== "prefill"),
      lines: answers.flatMap((each) => each.lines),
    });
  } finally {
    await client.close();
  }
}

function roles(given: Parameters<typeof describeOwnEngines>[0]): Asked[] {
  const both = new Set(given.prefillUrls.filter((url) => given.decodeUrls.includes(url)));
  const prefill = given.prefillUrls.map((url, at): Asked => {
    const isBoth = both.has(url);
    const workerId = `${isBoth ? "b" : "p"}${at}`;
    return {
      workerId,
      url,
      role: isBoth ? "both" : "prefill",
      kvEvents: given.kvEvents[at] ?? null,
    };
  });
  const decode = given.decodeUrls
    .filter((url) => !both.has(url))
    .map((url, at): Asked => ({ workerId: `d${at}`, url, role: "decode", kvEvents: null }));
  return [...prefill, ...decode];
}

async function describe(asked: Asked, client: EngineClient): Promise<Outcome<Found, BatonError>> {
  const { workerId, url, role } = asked;
  const target = { workerId, url, dialect: "vllm" } as const;
  const probe = await probeWorker(
    target,
    { engineClient: client, clock: systemClock },
    probeTimeoutMs,
  );
  if (probe.kind === "failed") {
    const message = `${role} engine ${url} does not answer: ${probe.reason}`;
    return fail(batonError("BATON_ENGINE_UNREACHABLE", message));
  }
  const get = {
    ...target,
    method: "GET",
    timeoutMs: probeTimeoutMs,
    bodyLimitBytes: 8 << 20,
  } as const;
  const [sources, metrics] = await Promise.all([
    client.fetchText({ ...get, path: "/kv_event_sources" }),
    client.fetchText({ ...get, path: "/metrics" }),
  ]);
  const announced =
    sources.ok && sources.value.status === 200 ? readKvEventSources(sources.value.text, url) : null;
  const endpoint = asked.kvEvents ?? announced?.endpoint ?? null;
  const { signals } = probe;
  const block = signals.blockSizeTokens.kind === "known" ? signals.blockSizeTokens.value : null;
  const room = signals.kvCapacityTokens.kind === "known" ? signals.kvCapacityTokens.value : null;
  const lines = [
    `${workerId}  ${role.padEnd(7)}  ${url}  version ${probe.version ?? "unknown"}  model ${probe.models?.join(", ") ?? "unknown"}  block ${block ?? "unknown"}  room ${room ?? "unknown"} tokens`,
  ];
  const warn = (text: string) => lines.push(`    ! ${text}`);
  if (role !== "decode") {
    if (endpoint === null) {
      warn("no KV events: placed by load alone. Start it with --kv-events-config (README)");
    } else
      lines.push(
        `    KV events from ${endpoint}${announced?.replayEndpoint ? ", with replay" : ""}`,
      );
    if (endpoint !== null && (announced?.replayEndpoint ?? null) === null) {
      warn("no replay socket: lost events stay lost. Set replay_endpoint in --kv-events-config");
    }
    if (block !== null && block < 16)
      warn(`block size ${block}: under 16 tokens it is not indexed`);
  }
  const hasNixl = metrics.ok && metrics.value.text.includes("vllm:nixl_");
  if (role !== "both" && !hasNixl) {
    warn("no NIXL metrics: KV cannot be handed over unless it runs with NixlConnector (README)");
  }
  if (block === null)
    warn("no vLLM metrics: its load and cache are not known, our own counts are used");
  return ok({
    models: probe.models ?? [],
    settings: {
      workerId,
      url,
      role,
      dialect: "vllm",
      connector: role === "both" ? "none" : "nixl-pull",
      kvEvents:
        endpoint === null
          ? { kind: "off" }
          : { kind: "endpoint", endpoint, replayEndpoint: announced?.replayEndpoint ?? null },
    },
    lines,
  });
}

function chooseModel(wanted: string | null, found: readonly Found[]): Outcome<string, BatonError> {
  const shared = (found[0]?.models ?? []).filter((model) =>
    found.every((each) => each.models.includes(model)),
  );
  const model = wanted ?? shared[0];
  if (model !== undefined && shared.includes(model)) return ok(model);
  const served = found
    .map((each) => `${each.settings.url}: ${each.models.join(", ") || "none"}`)
    .join("; ");
  const message =
    wanted === null
      ? `the engines serve no model in common (${served})`
      : `not every engine serves ${wanted} (${served})`;
  return fail(batonError("BATON_UNKNOWN_MODEL", message));
}
