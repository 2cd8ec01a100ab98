import type { Test } from "tap";
import { ledgerOf } from "./engine.ts";
import { type Fleet, workersOf } from "./fleet.ts";
import { readMetrics, sumOf } from "./metrics-text.ts";
import { until } from "./until.ts";

/**
 * A client's abort may leave a decode leg that only frees blocks (`request.abandonMsMax`, 2 s), and
 * schedulers set their gauges once a second.
 */
const restMsMax = 4_000;

const gauges = {
  frontend: ["baton_frontend_live_requests"],
  prefill: ["baton_scheduler_live_leases", "baton_worker_live_leases"],
  decode: [
    "baton_scheduler_live_leases",
    "baton_worker_live_leases",
    "baton_transfer_open_handles",
    "baton_transfer_reserved_transfers",
    "baton_transfer_ingress_bytes",
    "baton_decode_kv_promised_tokens",
  ],
} as const;

/** All that is still held somewhere, by name; empty at rest. */
export async function heldBy(fleet: Fleet): Promise<Record<string, number>> {
  const held: Record<string, number> = {};
  const pages = { frontend: fleet.url, ...fleet.adminUrls };
  await Promise.all([
    ...(["frontend", "prefill", "decode"] as const).map(async (service) => {
      const page = await readMetrics(pages[service]);
      for (const name of gauges[service]) held[`${service} ${name}`] = sumOf(page, name);
    }),
    // The gauges' own figures, without their delay.
    ...(["prefill", "decode"] as const).map(async (pool) => {
      for (const each of await workersOf(fleet, pool)) {
        held[`leases of ${each.workerId} in the ${pool} pool`] = each.leases;
      }
    }),
    ...fleet.engines.map(async (engine) => {
      const { requestsRunning, requestsWaiting, blocksHeld, blocksUsed } = await ledgerOf(engine);
      const figures = { requestsRunning, requestsWaiting, blocksHeld, blocksUsed };
      for (const [name, value] of Object.entries(figures)) {
        held[`${engine.workerId} ${name}`] = value;
      }
    }),
  ]);
  return Object.fromEntries(Object.entries(held).filter(([, value]) => value !== 0));
}

/** Every gauge and every engine comes to zero, and no handle was ever presented twice or expired. */
export async function comesToRest(t: Test, fleet: Fleet): Promise<void> {
  let held: Record<string, number> = {};
  const isAtRest = async () => {
    held = await heldBy(fleet);
    return Object.keys(held).length === 0;
  };
  await until(isAtRest, "nothing is held any more", restMsMax).catch(() => {});
  t.strictSame(held, {}, "nothing is held any more");
  for (const engine of fleet.engines) {
    const { handlesSeen, handlesExpired } = await ledgerOf(engine);
    const twice = handlesSeen.filter(({ times }) => times !== 1);
    t.strictSame(twice, [], `${engine.workerId} saw no handle twice`);
    t.equal(handlesExpired, 0, `no handle of ${engine.workerId} expired`);
  }
  const [prefill, decode] = await Promise.all([
    readMetrics(fleet.adminUrls.prefill),
    readMetrics(fleet.adminUrls.decode),
  ]);
  for (const page of [prefill, decode]) {
    t.equal(sumOf(page, "baton_scheduler_leases_lost_total"), 0, "every lease had its outcome");
  }
}
