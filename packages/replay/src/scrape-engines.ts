import { type EngineSnapshot, type ReplayEngine, recordBytes } from "./engine-figures.ts";
import { parseEngineMetrics } from "./engine-metrics.ts";

/** The body of a 200 answer to a GET, null for any other answer, a failure or one too late. */
export type FetchBytes = (url: string) => Promise<Uint8Array | null>;

const timeoutMs = 10_000;

/** `FetchBytes` over node's fetch. */
export async function fetchBytes(url: string): Promise<Uint8Array | null> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    const bytes = new Uint8Array(await answer.arrayBuffer());
    return answer.status === 200 ? bytes : null;
  } catch {
    // Refused, reset or late: the snapshot says that nothing was read, and the report why.
    return null;
  }
}

/** Snapshots of all engines at once; one that does not answer has nulls. */
export function scrapeEngines(
  fetchBytes: FetchBytes,
  engines: readonly ReplayEngine[],
): Promise<EngineSnapshot[]> {
  return Promise.all(
    engines.map(async (engine) => {
      const [metrics, ledger] = await Promise.all([
        fetchBytes(`${engine.url}/metrics`),
        engine.role === "decode" ? null : fetchBytes(`${engine.url}/sim/ledger/computed-blocks`),
      ]);
      const counts =
        metrics === null ? null : parseEngineMetrics(new TextDecoder().decode(metrics));
      const isLedger = ledger !== null && ledger.length % recordBytes === 0;
      return { ...engine, counts, computedBlocks: isLedger ? ledger : null };
    }),
  );
}
