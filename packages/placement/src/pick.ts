import type { CandidateRecord, WorkerIdentity } from "@baton/domain";

/** `round-robin` is the yardstick: it knows nothing but who is up. */
export type Policy = "cost" | "round-robin";
export const policies: readonly Policy[] = ["cost", "round-robin"];

/** Costs this close are a tie: the terms are estimates, and always taking the first makes herds. */
const tieMs = 1;
const tieRatio = 0.005;

export interface Pick {
  readonly winner: WorkerIdentity | null;
  readonly reason: string;
}

/** The cheapest candidate; ties are drawn. Rejected candidates have no cost. */
export function pickCheapest(candidates: readonly CandidateRecord[], tieDraw: number): Pick {
  const scored = candidates.filter((each) => each.costMs !== null);
  if (scored.length === 0) return { winner: null, reason: noCandidate(candidates) };
  const best = Math.min(...scored.map((each) => each.costMs!));
  const limit = best + Math.max(tieMs, Math.abs(best) * tieRatio);
  const tied = scored.filter((each) => each.costMs! <= limit);
  const winner = tied[Math.floor(tieDraw * tied.length)]!.worker;
  if (scored.length === 1) return { winner, reason: "only candidate" };
  return { winner, reason: tied.length === 1 ? "cost" : `cost, one of ${tied.length} equal` };
}

/** The next in the order of worker ids. */
export function pickNext(candidates: readonly CandidateRecord[], turn: number): Pick {
  const scored = candidates
    .filter((each) => each.costMs !== null)
    .sort((left, right) => (left.worker.workerId < right.worker.workerId ? -1 : 1));
  if (scored.length === 0) return { winner: null, reason: noCandidate(candidates) };
  return { winner: scored[turn % scored.length]!.worker, reason: "round robin" };
}

function noCandidate(candidates: readonly CandidateRecord[]): string {
  if (candidates.length === 0) return "no candidate: the pool is empty";
  const reasons = candidates.map((each) => `${each.worker.workerId} ${each.rejected ?? ""}`);
  const shown = reasons.slice(0, 8).join("; ");
  return `no candidate: ${shown}${reasons.length > 8 ? `; and ${reasons.length - 8} more` : ""}`;
}
