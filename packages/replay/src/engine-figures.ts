import type { WorkerRole } from "@baton/domain";
import type { BlockCounter } from "./block-counter.ts";
import type { EngineCounts } from "./engine-metrics.ts";

export interface ReplayEngine {
  readonly workerId: string;
  /** Scheme, host and port, without a trailing slash. */
  readonly url: string;
  readonly role: WorkerRole;
}

/** One engine at one moment. */
export interface EngineSnapshot extends ReplayEngine {
  /** Null when its metrics could not be read. */
  readonly counts: EngineCounts | null;
  /**
   * Records of 12 bytes, little endian: u64 block hash, u32 times computed; null: no simulated
   * engine, or not readable.
   */
  readonly computedBlocks: Uint8Array | null;
}

export interface WorkerFigures {
  readonly workerId: string;
  readonly computedTokens: number | null;
  readonly cachedTokens: number | null;
}

export interface EngineFigures {
  /** Cached by queried tokens, over the workers that prefill. */
  readonly hitRatio: number | null;
  /** How often the pool computed a block that two or more rows hold, on average; 1 is the best. */
  readonly prefillsPerSharedBlock: number | null;
  /** Computed tokens of the busiest worker that prefills, by their mean. */
  readonly workerTokensMaxOverMean: number | null;
  /** KV bytes that the workers that decode pulled in. */
  readonly bytesMoved: number | null;
  readonly perWorker: readonly WorkerFigures[];
  /** Why a figure is missing. */
  readonly notes: readonly string[];
}

/**
 * What the engines did between two snapshots of the same engines in the same order. A figure is null
 * when one engine that it needs does not give it: a part would look like the whole. `counter` holds
 * the replayed prompts and takes up the computed blocks; use it once.
 */
export function engineFigures(
  before: readonly EngineSnapshot[],
  after: readonly EngineSnapshot[],
  counter: BlockCounter | null,
): EngineFigures {
  const pairs = after.map((engine, index) => ({ engine, old: before[index]! }));
  const prefill = pairs.filter(({ engine }) => engine.role !== "decode");
  const decode = pairs.filter(({ engine }) => engine.role !== "prefill");
  const differences = (of: typeof pairs, field: keyof EngineCounts) =>
    of.map(({ engine, old }) => difference(old.counts, engine.counts, field));
  const cached = differences(prefill, "cachedTokens");
  const computed = differences(prefill, "computedTokens");
  return {
    hitRatio: ratio(total(cached), total(differences(prefill, "queriedTokens"))),
    prefillsPerSharedBlock: counter === null ? null : prefillsPerShared(prefill, counter),
    workerTokensMaxOverMean: maxOverMean(computed),
    bytesMoved: total(differences(decode, "movedBytes")),
    perWorker: prefill.map(({ engine }, index) => ({
      workerId: engine.workerId,
      computedTokens: computed[index]!,
      cachedTokens: cached[index]!,
    })),
    notes: pairs.flatMap(({ engine, old }) => note(engine, old)),
  };
}

interface SnapshotPair {
  readonly engine: EngineSnapshot;
  readonly old: EngineSnapshot;
}

/**
 * Null when unknown, and when a counter went back: the engine restarted in between. A series that was
 * not there before began at 0, as Prometheus clients do for labels not used yet.
 */
function difference(
  old: EngineCounts | null,
  now: EngineCounts | null,
  field: keyof EngineCounts,
): number | null {
  const value = now?.[field] ?? null;
  if (old === null || value === null) return null;
  const increase = value - (old[field] ?? 0);
  return increase < 0 ? null : increase;
}

function total(values: readonly (number | null)[]): number | null {
  let sum = 0;
  for (const value of values) {
    if (value === null) return null;
    sum += value;
  }
  return values.length === 0 ? null : sum;
}

function ratio(part: number | null, whole: number | null): number | null {
  return part === null || whole === null || whole === 0 ? null : part / whole;
}

function maxOverMean(values: readonly (number | null)[]): number | null {
  const sum = total(values);
  if (sum === null || sum === 0) return null;
  return Math.max(...values.map((value) => value ?? 0)) / (sum / values.length);
}

/** Of one entry of a ledger of computed blocks. */
export const recordBytes = 12;

function prefillsPerShared(pairs: readonly SnapshotPair[], counter: BlockCounter): number | null {
  for (const { engine, old } of pairs) {
    if (engine.computedBlocks === null || old.computedBlocks === null) return null;
  }
  for (const { engine, old } of pairs) {
    addRecords(counter, engine.computedBlocks!, 1);
    addRecords(counter, old.computedBlocks!, -1);
  }
  const { blocks, computed } = counter.shared();
  return pairs.length === 0 || blocks === 0 ? null : computed / blocks;
}

function addRecords(counter: BlockCounter, records: Uint8Array, sign: 1 | -1): void {
  const view = new DataView(records.buffer, records.byteOffset, records.byteLength);
  for (let at = 0; at < view.byteLength; at += recordBytes) {
    const times = view.getUint32(at + 8, true);
    counter.addComputed(view.getUint32(at, true), view.getUint32(at + 4, true), sign * times);
  }
}

function note(engine: EngineSnapshot, old: EngineSnapshot): string[] {
  const { workerId, url } = engine;
  if (engine.counts === null || old.counts === null) {
    return [`worker ${workerId}: no metrics from ${url}/metrics`];
  }
  const now = engine.counts;
  const then = old.counts;
  const fields = Object.keys(now) as (keyof EngineCounts)[];
  const isReset = fields.some((field) => then[field] !== null && (now[field] ?? 0) < then[field]);
  return isReset ? [`worker ${workerId}: its counters went back, it restarted`] : [];
}
