import type { CandidateRecord, DecisionTerm, WorkerIdentity } from "@baton/domain";
import { type DecodeCoefficients, decodeStepMs } from "@baton/perf-model";

/** What the decode choice knows of one candidate. */
export interface DecodeCandidate {
  readonly worker: WorkerIdentity;
  readonly sequences: number;
  /** Tokens of KV in use or promised. */
  readonly kvTokens: number;
  /** Null when the engine does not say: then room is not checked. */
  readonly kvCapacityTokens: number | null;
  /** Until the prompt's KV would have arrived; 0 without a transfer. */
  readonly transferMs: number;
  /** Prefill that it would have to do itself; 0 when another worker prefills. */
  readonly localPrefillMs: number;
}

export interface DecodeNeed {
  readonly promptTokens: number;
  readonly outputTokens: number;
}

/** vLLM keeps one block back, and a preemption costs more than an idle percent. */
const fillRatioMax = 0.98;
/** From here on a worker is near full: the estimate of outputs may be low. */
const fillRatioHigh = 0.9;
const fullPenaltyMs = 1_000;

/**
 * cost(d) = transfer(d) + local prefill(d) + outputs · step after + sequences · outputs · slow-down + full(d), in ms.
 * - step after = decode step with this request in the batch: its own inter-token time;
 *   slow-down = step after − step before: what it adds to each token of those that run there.
 * - full(d) = 1,000 · (fill − 0.9)/0.1 above 90 % fill: running full means preemption.
 * With equal transfers the least loaded KV wins.
 */
export function decodeCost(
  candidate: DecodeCandidate,
  need: DecodeNeed,
  coefficients: DecodeCoefficients,
): CandidateRecord {
  const tokens = need.promptTokens + need.outputTokens;
  const after = { sequences: candidate.sequences + 1, kvTokens: candidate.kvTokens + tokens };
  const stepMs = decodeStepMs(coefficients, after);
  const slowdownMs = stepMs - decodeStepMs(coefficients, candidate);
  const decodeMs = need.outputTokens * stepMs;
  const damageMs = candidate.sequences * need.outputTokens * slowdownMs;
  const capacity = candidate.kvCapacityTokens;
  const fillRatio = capacity === null ? null : after.kvTokens / capacity;
  if (fillRatio !== null && fillRatio > fillRatioMax) {
    const free = Math.max(0, usableTokens(capacity!) - candidate.kvTokens);
    return rejectedDecode(candidate.worker, `room for ${free} tokens, ${tokens} needed`);
  }
  const fullMs =
    fillRatio === null || fillRatio <= fillRatioHigh
      ? 0
      : (fullPenaltyMs * (fillRatio - fillRatioHigh)) / (1 - fillRatioHigh);
  const terms: DecisionTerm[] = [
    { name: "transfer", value: candidate.transferMs, unit: "ms" },
    { name: "local prefill", value: candidate.localPrefillMs, unit: "ms" },
    { name: "decode", value: decodeMs, unit: "ms" },
    { name: "slow-down of others", value: damageMs, unit: "ms" },
    { name: "near full", value: fullMs, unit: "ms" },
    { name: "sequences", value: candidate.sequences, unit: "requests" },
    { name: "kv in use or promised", value: candidate.kvTokens, unit: "tokens" },
  ];
  const costMs = candidate.transferMs + candidate.localPrefillMs + decodeMs + damageMs + fullMs;
  return { worker: candidate.worker, rejected: null, terms, costMs };
}

/** What may be promised of a worker's KV cache. */
export function usableTokens(capacityTokens: number): number {
  return Math.floor(capacityTokens * fillRatioMax);
}

export function rejectedDecode(worker: WorkerIdentity, reason: string): CandidateRecord {
  return { worker, rejected: reason, terms: [], costMs: null };
}
