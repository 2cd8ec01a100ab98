import type { ActiveRequest, StepRow } from "./active-request.ts";
import type { EngineCounters } from "./engine-counters.ts";
import type { Happening } from "./engine-request.ts";
import type { PagedCache } from "./paged-cache.ts";

export interface StepPlannerOptions {
  readonly cache: PagedCache;
  readonly tokensPerStepMax: number;
  readonly requestsRunningMax: number;
  readonly report: (happening: Happening) => void;
  readonly counters: EngineCounters;
}

/**
 * Which requests a step works on, in vLLM's order: running ones first, in order of admission, a
 * token each or the next chunk of their prompt; then those whose KV has arrived; then the queue, first
 * come first served, while the token budget and the room last. The head of the queue is not
 * overtaken, except that a request that waits for another engine's KV holds up nobody. When a
 * running request finds no block for its next token, the youngest one is preempted: it gives all
 * its blocks back, goes to the head of the queue and computes everything again.
 */
export class StepPlanner {
  readonly #options: StepPlannerOptions;
  readonly #running: ActiveRequest[] = [];
  readonly #delivered: ActiveRequest[] = [];
  readonly #waiting: ActiveRequest[] = [];

  constructor(options: StepPlannerOptions) {
    this.#options = options;
  }

  get running(): number {
    return this.#running.length;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  enqueue(active: ActiveRequest): void {
    this.#waiting.push(active);
  }

  /** Its contents are there; it has its blocks. */
  enqueueDelivered(active: ActiveRequest): void {
    this.#delivered.push(active);
  }

  remove(active: ActiveRequest): void {
    for (const queue of [this.#running, this.#delivered, this.#waiting]) {
      const index = queue.indexOf(active);
      if (index >= 0) queue.splice(index, 1);
    }
  }

  /** Rows of the step that begins at `nowMs`; empty when nothing can run. Fills the cache for them. */
  plan(nowMs: number): readonly StepRow[] {
    const rows: StepRow[] = [];
    let budget = this.#options.tokensPerStepMax;
    const preemptionsBefore = this.#options.counters.preemptions;
    for (let index = 0; index < this.#running.length && budget > 0; index++) {
      const active = this.#running[index]!;
      if (active.isDecoding && !this.#makeRoom(active)) break;
      budget -= this.#addRow(rows, active, budget);
    }
    while (this.#delivered.length > 0 && this.#hasSlot() && budget > 0) {
      const active = this.#delivered.shift()!;
      this.#options.cache.receive(active.sequence, active.contents!);
      active.contents = null;
      active.isRemote = false;
      active.isDecoding = true;
      this.#running.push(active);
      budget -= this.#addRow(rows, active, budget);
    }
    if (this.#options.counters.preemptions > preemptionsBefore) return rows;
    while (this.#waiting.length > 0 && this.#hasSlot() && budget > 0) {
      const active = this.#waiting[0]!;
      if (!this.#admit(active, nowMs)) break;
      this.#waiting.shift();
      if (active.isRemote) continue;
      this.#running.push(active);
      budget -= this.#addRow(rows, active, budget);
    }
    return rows;
  }

  #hasSlot(): boolean {
    return this.#running.length < this.#options.requestsRunningMax;
  }

  /** Tokens taken from the budget. */
  #addRow(rows: StepRow[], active: ActiveRequest, budget: number): number {
    const { sequence } = active;
    const fromToken = sequence.filledTokens;
    if (active.isDecoding) {
      this.#options.cache.fill(sequence, sequence.length);
      rows.push({ active, fromToken: null, toToken: sequence.length });
      return 1;
    }
    const toToken = Math.min(sequence.length, fromToken + budget);
    this.#options.cache.fill(sequence, toToken);
    rows.push({ active, fromToken, toToken });
    return toToken - fromToken;
  }

  /** False: `active` itself was the youngest and had to go. */
  #makeRoom(active: ActiveRequest): boolean {
    while (!this.#options.cache.grow(active.sequence)) {
      const youngest = this.#running.pop()!;
      this.#options.cache.release(youngest.sequence);
      youngest.isDecoding = false;
      this.#waiting.unshift(youngest);
      youngest.preemptions++;
      this.#options.counters.preemptions++;
      if (youngest === active) return false;
    }
    return true;
  }

  #admit(active: ActiveRequest, nowMs: number): boolean {
    const { cache, counters, report } = this.#options;
    const hitTokens = cache.admit(active.sequence);
    if (hitTokens === null) return false;
    const requestId = active.request.id;
    if (!active.wasAdmitted) {
      active.wasAdmitted = true;
      counters.queriedTokens += active.sequence.length;
      counters.hitTokens += hitTokens;
      report({ kind: "admitted", atMs: nowMs, requestId, hitTokens });
    }
    if (active.isRemote) {
      const blocks = active.sequence.blocks.length - active.sequence.hashedBlocks;
      report({ kind: "pull", atMs: nowMs, requestId, blocks });
    }
    return true;
  }
}
