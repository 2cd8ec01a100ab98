import { Ring } from "@baton/kit";
import { percentilesOf } from "./percentiles.ts";
import type { CompletionAnswer } from "./send-completion.ts";
import type { CompletionFailure } from "./streamed-answer.ts";
import type { TraceRow } from "./trace-row.ts";

/** How one row ended. Times are trace time; those of a failed row are as far as it came. */
export interface RowResult {
  readonly row: TraceRow;
  readonly failure: CompletionFailure | null;
  readonly ttftMs: number | null;
  /** Mean gap between its token events; null for one event. */
  readonly tpotMs: number | null;
  readonly e2eMs: number;
}

export interface ReplayRun {
  /** By row. */
  readonly results: readonly RowResult[];
  /** Every gap between two token events of the rows that ended well. */
  readonly itlMs: readonly number[];
  /** How much later than due each request was sent. */
  readonly latenessMs: readonly number[];
  readonly wallSeconds: number;
}

/** Wall times, except the TTFT. */
export interface ReplayProgress {
  readonly total: number;
  readonly sent: number;
  readonly done: number;
  readonly errors: number;
  readonly elapsedMs: number;
  readonly etaMs: number | null;
  /** Of the newest answers. */
  readonly ttftMsP50: number | null;
  /** Said once, at the end. */
  readonly isOver: boolean;
}

const liveAnswers = 200;

/** Collects answers in trace time. */
export class ReplayTally {
  readonly #rows: readonly TraceRow[];
  readonly #speed: number;
  readonly #startMs: number;
  readonly #results: RowResult[] = [];
  readonly #itlMs: number[] = [];
  readonly #latenessMs: number[] = [];
  readonly #ttftMsLive = new Ring<number>(liveAnswers);
  #done = 0;
  #errors = 0;

  constructor(rows: readonly TraceRow[], speed: number, startMs: number) {
    this.#rows = rows;
    this.#speed = speed;
    this.#startMs = startMs;
  }

  sent(latenessMs: number): void {
    this.#latenessMs.push(Math.max(0, latenessMs) * this.#speed);
  }

  ended(index: number, answer: CompletionAnswer): void {
    const speed = this.#speed;
    const { failure, gapsMs } = answer;
    const ttftMs = answer.ttftMs === null ? null : answer.ttftMs * speed;
    this.#done++;
    if (failure !== null) this.#errors++;
    else for (const gapMs of gapsMs) this.#itlMs.push(gapMs * speed);
    if (ttftMs !== null) this.#ttftMsLive.push(ttftMs);
    const sumMs = gapsMs.reduce((sum, gapMs) => sum + gapMs, 0);
    this.#results[index] = {
      row: this.#rows[index]!,
      failure,
      ttftMs,
      tpotMs: gapsMs.length === 0 ? null : (sumMs / gapsMs.length) * speed,
      e2eMs: answer.e2eMs * speed,
    };
  }

  /** The remaining time is guessed from the rate so far. */
  progress(nowMs: number): Omit<ReplayProgress, "isOver"> {
    const total = this.#rows.length;
    const elapsedMs = nowMs - this.#startMs;
    return {
      total,
      sent: this.#latenessMs.length,
      done: this.#done,
      errors: this.#errors,
      elapsedMs,
      etaMs: this.#done === 0 ? null : (elapsedMs / this.#done) * (total - this.#done),
      ttftMsP50: percentilesOf([...this.#ttftMsLive.newestFirst()]).p50,
    };
  }

  /** Rows that were never sent count as stopped. */
  run(nowMs: number): ReplayRun {
    const failure = { code: "ABORTED", message: "the replay was stopped" };
    const unsent = { failure, ttftMs: null, tpotMs: null, e2eMs: 0 };
    return {
      results: this.#rows.map((row, index) => this.#results[index] ?? { row, ...unsent }),
      itlMs: this.#itlMs,
      latenessMs: this.#latenessMs,
      wallSeconds: (nowMs - this.#startMs) / 1_000,
    };
  }
}
