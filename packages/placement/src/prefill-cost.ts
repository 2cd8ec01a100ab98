import type {
  CandidateRecord,
  DecisionTerm,
  TierCounts,
  TierWeights,
  WorkerIdentity,
} from "@baton/domain";
import { type PrefillCoefficients, prefillMs } from "@baton/perf-model";
import { type WorkerOverlap, weightedTokens } from "@baton/prefix-index";

/** What the prefill choice knows of one candidate. */
export interface PrefillCandidate {
  readonly worker: WorkerIdentity;
  readonly overlap: WorkerOverlap;
  /** Null before the worker's first event: then it has no overlap either. */
  readonly blockSizeTokens: number | null;
  /** Predicted time until the work that it has is done. */
  readonly waitMs: number;
  /** Measured against its profile; 1 until something is known. */
  readonly rateFactor: number;
  /** Prefill work given lately, fading. */
  readonly recentMs: number;
}

export interface PrefillCost {
  readonly record: CandidateRecord;
  readonly cachedTokens: TierCounts;
  readonly computeMs: number;
}

/**
 * Share of the recent imbalance that counts as cost. A block that every request shares (a common
 * system prompt) saves tens of ms on whoever got it first, and would pin an idle pool to that worker;
 * a real history saves hundreds, which this does not outweigh.
 */
const balanceWeight = 0.1;

/**
 * Price of computing what another candidate has or will have, as a multiple of that work: it takes the
 * pool's time from others. So a holder is worth waiting for as long as three times the work saved; at 0
 * each sibling of a burst would compute the prefix on an idle worker of its own rather than wait for
 * the leader. On 600 conversation rows (4 prefill workers) 1, 2 and 3 gave 14.6, 15.4 and 16.3 % hits of
 * 17.2 % possible at the same times to first token; 2 keeps a hot prefix from queueing long.
 */
const recomputeWeight = 2;

/**
 * cost(w) = wait(w) + compute(w) + recompute(w) + balance(w), in ms; the first two are its TTFT:
 * - compute = rate(w) · prefill(n, past), past = Σ tokens(tier)·weight(tier) + promised tokens,
 *   n = prompt − past. At least one token is always computed: engines never reuse a prompt's last block
 *   whole. Tokens promised to w are there by its turn, since w works in order.
 * - recompute = 2 · (compute(w) − least compute of any candidate).
 * - balance = 0.1 · (recent work of w − least recent work of any candidate).
 */
export function prefillCosts(
  candidates: readonly PrefillCandidate[],
  promptTokens: number,
  model: { readonly coefficients: PrefillCoefficients; readonly tierWeights: TierWeights },
): PrefillCost[] {
  const works = candidates.map((each) => workOf(each, promptTokens, model));
  const computeMsLeast = Math.min(...works.map((each) => each.computeMs));
  const recentMsLeast = Math.min(...candidates.map((each) => each.recentMs));
  return candidates.map((candidate, at) => {
    const { cachedTokens, pendingTokens, computeMs } = works[at]!;
    const recomputeMs = recomputeWeight * (computeMs - computeMsLeast);
    const balanceMs = balanceWeight * (candidate.recentMs - recentMsLeast);
    const costMs = candidate.waitMs + computeMs + recomputeMs + balanceMs;
    const terms: DecisionTerm[] = [
      { name: "wait", value: candidate.waitMs, unit: "ms" },
      { name: "compute", value: computeMs, unit: "ms" },
      { name: "recompute", value: recomputeMs, unit: "ms" },
      { name: "balance", value: balanceMs, unit: "ms" },
      { name: "cached on gpu", value: cachedTokens.gpu, unit: "tokens" },
      { name: "cached on host", value: cachedTokens.host, unit: "tokens" },
      { name: "cached on disk", value: cachedTokens.disk, unit: "tokens" },
      { name: "promised", value: pendingTokens, unit: "tokens" },
      { name: "rate factor", value: candidate.rateFactor, unit: "ratio" },
    ];
    const record = { worker: candidate.worker, rejected: null, terms, costMs };
    return { record, cachedTokens, computeMs };
  });
}

function workOf(
  candidate: PrefillCandidate,
  promptTokens: number,
  model: { readonly coefficients: PrefillCoefficients; readonly tierWeights: TierWeights },
): { cachedTokens: TierCounts; pendingTokens: number; computeMs: number } {
  const { cachedTokens, pendingTokens } = overlapTokens(candidate, promptTokens);
  const pastTokens = weightedTokens(cachedTokens, model.tierWeights) + pendingTokens;
  const newTokens = Math.max(1, promptTokens - pastTokens);
  const computeMs = candidate.rateFactor * prefillMs(model.coefficients, { newTokens, pastTokens });
  return { cachedTokens, pendingTokens, computeMs };
}

/** Counts in tokens, cut so that the prompt's last block is never counted as reusable whole. */
function overlapTokens(
  candidate: PrefillCandidate,
  promptTokens: number,
): { readonly cachedTokens: TierCounts; readonly pendingTokens: number } {
  const size = candidate.blockSizeTokens ?? 0;
  const { cachedBlocks, pendingBlocks } = candidate.overlap;
  let left = size === 0 ? 0 : Math.floor((promptTokens - 1) / size);
  const take = (blocks: number) => {
    const taken = Math.min(blocks, left);
    left -= taken;
    return taken * size;
  };
  const gpu = take(cachedBlocks.gpu);
  const host = take(cachedBlocks.host);
  const disk = take(cachedBlocks.disk);
  return { cachedTokens: { gpu, host, disk }, pendingTokens: take(pendingBlocks) };
}
