import { connectorNamed } from "@baton/connectors";
import { Prng } from "@baton/kit";
import type { EngineProfile } from "@baton/perf-model";
import { attemptKey, DecodePool, type Policy, type ReserveRequest } from "@baton/placement";
import type { GetAnswer, Metrics } from "@baton/ports";
import {
  fleet,
  handle,
  handleAnswer,
  type MessageOf,
  type outcome,
  reserve,
  reserved,
  subjectOf,
} from "@baton/protocol";
import { type PoolSettings, type SchedulerPorts, SchedulerShell } from "@baton/scheduler-shell";
import type { DecodeMetricDefinitions } from "./metrics.ts";

export interface DecodeSchedulerConfig extends PoolSettings {
  readonly policy: Policy;
  readonly profile: EngineProfile;
  readonly linkBytesPerSecond: number;
  readonly outputTokensDefault: number;
  /** Shortest life of a handle; null takes the connector's. */
  readonly handleLeaseMs: number | null;
  /** Seed of the draws that break ties. */
  readonly seed: number;
}

export interface DecodeSchedulerPorts extends SchedulerPorts {
  readonly metrics: Metrics<DecodeMetricDefinitions>;
}

export interface Scheduler {
  start(): Promise<void>;
  /** What keeps requests from being served; empty when nothing does. */
  missing(): string[];
  workers(): GetAnswer;
  decisions(query: { readonly requestId: string | null; readonly limit: number }): GetAnswer;
  drain(): Promise<void>;
}

/** Chooses where answers are decoded, and brokers KV handles, for one model's pool. */
export function createDecodeScheduler(
  config: DecodeSchedulerConfig,
  ports: DecodeSchedulerPorts,
): Scheduler {
  const pool = new DecodePool(config);
  const prng = new Prng(config.seed);
  const { clock, metrics } = ports;
  const shell = new SchedulerShell({
    pool: "decode",
    settings: config,
    ports,
    state: pool,
    onOutcome,
    onBatch() {},
    onReset() {},
    onTick: setGauges,
  });

  function onReserve(payload: Uint8Array): Uint8Array {
    const decoded = reserve.decode(payload);
    shell.read(decoded);
    if (!decoded.ok) return reserved.encode({ kind: "refused", error: decoded.error });
    const message = decoded.value;
    const request: ReserveRequest = {
      ...message,
      owner: shell.heard(message.frontend),
      deadlineMs: clock.nowMs() + message.deadlineMs,
      offers: message.candidates,
    };
    const moment = { nowMs: clock.nowMs(), wallMs: clock.wallMs(), tieDraw: prng.next() };
    const { record, reservation } = pool.reserve(request, moment);
    shell.decided(record, reservation.ok ? null : reservation.error);
    if (!reservation.ok) return reserved.encode({ kind: "refused", error: reservation.error });
    const { kind } = reservation.value;
    metrics.counter("baton_decode_reservations_total", { kind }).add();
    return reserved.encode(reservation.value);
  }

  function onHandle(payload: Uint8Array): Uint8Array {
    const decoded = handle.decode(payload);
    shell.read(decoded);
    const answer = decoded.ok
      ? claim(decoded.value)
      : ({ kind: "refused", reason: decoded.error.message } as const);
    metrics.counter("baton_transfer_handles_total", { result: answer.kind }).add();
    if (answer.kind === "refused") ports.logger.warn({ reason: answer.reason }, "handle refused");
    return handleAnswer.encode(answer);
  }

  function claim(message: MessageOf<typeof handle>): MessageOf<typeof handleAnswer> {
    const connector = connectorNamed(message.connector);
    if (connector === undefined) {
      return { kind: "refused", reason: `unknown connector ${message.connector}` };
    }
    const leaseMs = config.handleLeaseMs ?? connector.handleLeaseMs;
    const { handleId, ageMs } = message;
    const key = attemptKey(message);
    return pool.claim({ key, worker: message.prefill, handleId, leaseMs, ageMs }, clock.nowMs());
  }

  /** Prefill workers that restarted took their blocks with them. */
  function onPrefillFleet(payload: Uint8Array): void {
    const message = shell.read(fleet.decode(payload));
    for (const { workerId, incarnation } of message?.workers ?? []) {
      if (incarnation === null) continue;
      const count = pool.prefillLife({ workerId, incarnation });
      if (count === 0) continue;
      metrics.counter("baton_transfer_handles_fenced_total").add(count);
      ports.logger.warn({ workerId, count }, "handles void: their prefill worker restarted");
    }
  }

  function onOutcome(message: MessageOf<typeof outcome>): void {
    const { stage } = message;
    if (stage.kind === "first-byte") pool.firstByte(message);
    if (stage.kind !== "ended") return;
    const worker = pool.ended(message, stage.workerFault, clock.nowMs());
    if (stage.workerFault && worker !== null) shell.faulted(worker);
  }

  function setGauges(): void {
    const stats = pool.stats();
    metrics.gauge("baton_transfer_open_handles").set(stats.openHandles);
    metrics.gauge("baton_transfer_reserved_transfers").set(stats.transfers);
    for (const { workerId: worker, kvTokens, ingressBytes } of stats.workers) {
      metrics.gauge("baton_decode_kv_promised_tokens", { worker }).set(kvTokens);
      metrics.gauge("baton_transfer_ingress_bytes", { worker }).set(ingressBytes);
    }
  }

  for (const result of ["claimed", "refused"]) {
    metrics.counter("baton_transfer_handles_total", { result }).add(0);
  }
  for (const kind of ["remote", "local"]) {
    metrics.counter("baton_decode_reservations_total", { kind }).add(0);
  }
  setGauges();
  return {
    async start() {
      shell.serve("reserve", onReserve);
      shell.serve("handle", onHandle);
      const prefillFleet = subjectOf(config.model, "prefill", "fleet");
      ports.bus.subscribe(prefillFleet, {}, ({ payload }) => onPrefillFleet(payload));
      await shell.start();
    },
    missing: () => shell.missing(),
    workers: () => shell.workersAnswer(),
    decisions: (query) => ({ status: 200, body: { records: shell.decisions.find(query) } }),
    drain: () => shell.drain(),
  };
}
