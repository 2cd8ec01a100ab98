import type { Pool } from "@baton/domain";
import { fleet } from "@baton/protocol";
import type { PoolSettings, SchedulerPool } from "./pool-settings.ts";

/** What frontends are told of a pool: its workers, their limits and the block sizes in use. */
export function fleetPayload(options: {
  readonly pool: Pool;
  readonly settings: PoolSettings;
  readonly state: SchedulerPool;
  readonly isLeaving: boolean;
}): Uint8Array {
  const { pool, settings, state, isLeaving } = options;
  const workers = state.fleet.workers();
  const limits = workers.flatMap(({ maxModelLenTokens }) =>
    maxModelLenTokens === null ? [] : [maxModelLenTokens],
  );
  return fleet.encode({
    model: settings.model,
    pool,
    schedulerId: settings.schedulerId,
    isLeaving,
    indexBlockSizes: state.indexBlockSizes(),
    maxModelLenTokens: limits.length === 0 ? null : Math.max(...limits),
    workers: workers.map(({ config, incarnation, state, reason }) => ({
      workerId: config.workerId,
      url: config.url,
      incarnation,
      state,
      reason,
    })),
  });
}
