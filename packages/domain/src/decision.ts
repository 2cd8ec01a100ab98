import type { Pool, WorkerIdentity } from "./worker.ts";

export type TermUnit = "ms" | "tokens" | "blocks" | "ratio" | "bytes" | "requests";

export interface DecisionTerm {
  readonly name: string;
  readonly value: number;
  readonly unit: TermUnit;
}

export interface CandidateRecord {
  readonly worker: WorkerIdentity;
  /** Why a filter took it out; null when it was scored. */
  readonly rejected: string | null;
  /** Every term of the score and the facts behind it. Empty when rejected. */
  readonly terms: readonly DecisionTerm[];
  /** What the pick compares, lower is better; null when rejected. */
  readonly costMs: number | null;
}

/** One placement choice, whole: enough to see why, and to decide again to the same result. */
export interface DecisionRecord {
  readonly pool: Pool;
  readonly requestId: string;
  readonly attempt: number;
  readonly policy: string;
  /** Wall clock of the deciding process, ms since the epoch. */
  readonly wallMs: number;
  /** Null when the prompt was not tokenised: unknown is not zero. */
  readonly promptTokens: number | null;
  readonly candidates: readonly CandidateRecord[];
  /** Null when no candidate was left. */
  readonly winner: WorkerIdentity | null;
  /** Uniform draw in [0,1) that broke ties, so that the choice can be repeated. */
  readonly tieDraw: number;
  /** One phrase: `cost`, `only candidate`, `no candidate: …`. */
  readonly reason: string;
}
