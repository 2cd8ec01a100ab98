import type { EngineDialect, WorkerAddress, WorkerRole } from "@baton/domain";
import { invariant } from "@baton/kit";
import { FaultGate } from "./fault-gate.ts";
import { type EngineSignals, noSignals } from "./vllm-signals.ts";

/** A worker as configured. */
export interface WorkerConfig {
  readonly workerId: string;
  readonly url: string;
  readonly role: WorkerRole;
  readonly dialect: EngineDialect;
  /** Name of a connector of the `connectors` package. */
  readonly connector: string;
}

/** What one round of polling found. */
export type Probe =
  | { readonly kind: "failed"; readonly reason: string }
  | {
      readonly kind: "answered";
      /** Model names served; null when the list could not be read. */
      readonly models: readonly string[] | null;
      readonly maxModelLenTokens: number | null;
      readonly version: string | null;
      readonly signals: EngineSignals;
    };

export type WorkerState = "unknown" | "up" | "down" | "draining";

export interface WorkerView {
  readonly config: WorkerConfig;
  /** Null until the worker has answered once. */
  readonly incarnation: string | null;
  readonly state: WorkerState;
  readonly reason: string;
  readonly signals: EngineSignals;
  readonly maxModelLenTokens: number | null;
  readonly version: string | null;
}

/** Why a caller must act: leases and index entries of `ended` are void. */
export type FleetChange =
  | {
      readonly kind: "state";
      readonly workerId: string;
      readonly state: WorkerState;
      readonly reason: string;
    }
  | {
      readonly kind: "incarnation";
      readonly workerId: string;
      readonly ended: string | null;
      readonly begun: string;
    };

/** Failed probes in a row before a worker is down; one lost packet is not a death. */
const failedProbesMax = 2;

interface Entry {
  readonly config: WorkerConfig;
  readonly gate: FaultGate;
  incarnation: string | null;
  lives: number;
  processStartS: number | null;
  wasDown: boolean;
  failedProbes: number;
  state: WorkerState;
  reason: string;
  isDraining: boolean;
  signals: EngineSignals;
  maxModelLenTokens: number | null;
  version: string | null;
}

/** Which workers of one model's pool are there, in which life and state. */
export class Fleet {
  readonly #model: string;
  readonly #entries = new Map<string, Entry>();

  constructor(options: { readonly model: string; readonly workers: readonly WorkerConfig[] }) {
    this.#model = options.model;
    for (const config of options.workers) {
      invariant(!this.#entries.has(config.workerId), `worker ${config.workerId} is listed twice`);
      this.#entries.set(config.workerId, newEntry(config));
    }
  }

  applyProbe(workerId: string, probe: Probe): FleetChange[] {
    const entry = this.#entries.get(workerId);
    if (entry === undefined) return [];
    if (probe.kind === "failed") {
      entry.failedProbes += 1;
      if (entry.failedProbes < failedProbesMax && entry.state !== "unknown") return [];
      return this.#goDown(entry, probe.reason);
    }
    entry.failedProbes = 0;
    if (probe.models !== null && !probe.models.includes(this.#model)) {
      const served = probe.models.join(", ") || "no model";
      return this.#goDown(entry, `serves ${served}, not ${this.#model}`);
    }
    const changes = this.#applyLife(entry, probe.signals);
    entry.signals = probe.signals;
    entry.maxModelLenTokens = probe.maxModelLenTokens ?? entry.maxModelLenTokens;
    entry.version = probe.version ?? entry.version;
    return [...changes, ...this.#setState(entry, entry.isDraining ? "draining" : "up", "answers")];
  }

  /** The request path could not connect: do not wait for the next probe. */
  applyUnreachable(workerId: string, reason: string): FleetChange[] {
    const entry = this.#entries.get(workerId);
    return entry === undefined ? [] : this.#goDown(entry, reason);
  }

  /** The event stream proved a new process life (sequence went back). */
  applyRestart(workerId: string): FleetChange[] {
    const entry = this.#entries.get(workerId);
    return entry === undefined ? [] : this.#beginLife(entry);
  }

  applyFault(workerId: string, nowMs: number): void {
    this.#entries.get(workerId)?.gate.fault(nowMs);
  }

  applySuccess(workerId: string): void {
    this.#entries.get(workerId)?.gate.success();
  }

  drain(workerId: string, isDraining: boolean): FleetChange[] {
    const entry = this.#entries.get(workerId);
    if (entry === undefined) return [];
    entry.isDraining = isDraining;
    if (entry.state !== "up" && entry.state !== "draining") return [];
    return this.#setState(
      entry,
      isDraining ? "draining" : "up",
      isDraining ? "asked to" : "answers",
    );
  }

  workers(): WorkerView[] {
    return [...this.#entries.values()];
  }

  get(workerId: string): WorkerView | undefined {
    return this.#entries.get(workerId);
  }

  /** Why no new work may go to it; null when it may. */
  barrier(worker: WorkerView, nowMs: number): string | null {
    if (worker.state !== "up") return `${worker.state}: ${worker.reason}`;
    const isOpen = this.#entries.get(worker.config.workerId)?.gate.isOpen(nowMs) ?? false;
    return isOpen ? "quarantined after repeated faults" : null;
  }

  address(worker: WorkerView): WorkerAddress {
    const { workerId, url, dialect } = worker.config;
    invariant(worker.incarnation !== null, `worker ${workerId} has never answered`);
    return { workerId, incarnation: worker.incarnation, url, dialect, dpRank: null };
  }

  #applyLife(entry: Entry, signals: EngineSignals): FleetChange[] {
    const start = signals.processStartS;
    const startS = start.kind === "known" ? start.value : null;
    const isNewStart = startS !== null && startS !== entry.processStartS;
    if (isNewStart) entry.lives = 0;
    // Without a start time a worker that was down may have lost its cache: assume that it did.
    const mayBeNew = startS === null && entry.wasDown;
    entry.processStartS = startS ?? entry.processStartS;
    entry.wasDown = false;
    return entry.incarnation === null || isNewStart || mayBeNew ? this.#beginLife(entry) : [];
  }

  #beginLife(entry: Entry): FleetChange[] {
    const ended = entry.incarnation;
    entry.lives += 1;
    // Made of what the engine tells, so that schedulers that began at different times agree on it.
    const start = entry.processStartS === null ? "" : `${entry.processStartS}.`;
    entry.incarnation = `${start}${entry.lives}`;
    entry.gate.success();
    const { workerId } = entry.config;
    return [{ kind: "incarnation", workerId, ended, begun: entry.incarnation }];
  }

  #goDown(entry: Entry, reason: string): FleetChange[] {
    entry.wasDown = true;
    entry.signals = noSignals;
    return this.#setState(entry, "down", reason);
  }

  #setState(entry: Entry, state: WorkerState, reason: string): FleetChange[] {
    if (entry.state === state && entry.reason === reason) return [];
    entry.state = state;
    entry.reason = reason;
    return [{ kind: "state", workerId: entry.config.workerId, state, reason }];
  }
}

function newEntry(config: WorkerConfig): Entry {
  return {
    config,
    gate: new FaultGate(),
    incarnation: null,
    lives: 0,
    processStartS: null,
    wasDown: false,
    failedProbes: 0,
    state: "unknown",
    reason: "not asked yet",
    isDraining: false,
    signals: noSignals,
    maxModelLenTokens: null,
    version: null,
  };
}
