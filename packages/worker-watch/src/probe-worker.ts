import type { EngineDialect } from "@baton/domain";
import { noSignals, type Probe, readVllmSignals } from "@baton/fleet";
import type { Clock, EngineClient } from "@baton/ports";

export interface ProbeTarget {
  readonly workerId: string;
  readonly url: string;
  readonly dialect: EngineDialect;
}

/** SGLang's `/health` generates a token and takes a second; `/ready` is its cheap one. */
const healthPaths: Readonly<Record<EngineDialect, string>> = {
  vllm: "/health",
  sglang: "/ready",
  trtllm: "/health",
};

const answerBytesMax = 4 * 1024 * 1024;

/**
 * One round of polling: liveness decides; models, version and metrics are taken where the engine has
 * them, and stay unknown where it has not.
 */
export async function probeWorker(
  target: ProbeTarget,
  ports: { readonly engineClient: EngineClient; readonly clock: Clock },
  timeoutMs: number,
): Promise<Probe> {
  const { workerId, url } = target;
  const get = (path: string) =>
    ports.engineClient.fetchText({
      workerId,
      url,
      method: "GET",
      path,
      timeoutMs,
      bodyLimitBytes: answerBytesMax,
    });
  const health = await get(healthPaths[target.dialect]);
  if (!health.ok) return { kind: "failed", reason: health.error.message };
  if (health.value.status !== 200) {
    return {
      kind: "failed",
      reason: `${healthPaths[target.dialect]} answers ${health.value.status}`,
    };
  }
  const [models, version, metrics] = await Promise.all([
    get("/v1/models"),
    get("/version"),
    get("/metrics"),
  ]);
  const cards = models.ok && models.value.status === 200 ? readModels(models.value.text) : null;
  return {
    kind: "answered",
    models: cards?.map((card) => card.id) ?? null,
    maxModelLenTokens: cards?.[0]?.maxModelLenTokens ?? null,
    version: version.ok && version.value.status === 200 ? readVersion(version.value.text) : null,
    signals:
      metrics.ok && metrics.value.status === 200
        ? readVllmSignals(metrics.value.text, ports.clock.nowMs())
        : noSignals,
  };
}

interface ModelCard {
  readonly id: string;
  readonly maxModelLenTokens: number | null;
}

function readModels(text: string): ModelCard[] | null {
  const data = readJson(text)?.["data"];
  if (!Array.isArray(data)) return null;
  const cards: ModelCard[] = [];
  for (const card of data as unknown[]) {
    if (typeof card !== "object" || card === null) continue;
    const { id, max_model_len } = card as Record<string, unknown>;
    if (typeof id !== "string") continue;
    const limit = Number.isSafeInteger(max_model_len) ? (max_model_len as number) : null;
    cards.push({ id, maxModelLenTokens: limit });
  }
  return cards;
}

function readVersion(text: string): string | null {
  const version = readJson(text)?.["version"];
  return typeof version === "string" ? version : null;
}

function readJson(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
