import { connectorNamed } from "@baton/connectors";
import {
  type BatonError,
  batonError,
  type WorkerAddress,
  type WorkerIdentity,
} from "@baton/domain";
import type { Outcome } from "@baton/kit";
import { fail, ok } from "@baton/kit";
import {
  handle,
  handleAnswer,
  type MessageOf,
  outcome,
  place,
  placed,
  reserve,
  reserved,
  subjectOf,
} from "@baton/protocol";
import type { Offer, Plan, StageReport } from "@baton/request-flow";
import type { Prompt } from "./prompt.ts";
import type { FrontendConfig, FrontendPorts } from "./settings.ts";

export interface PlanRequest {
  readonly requestId: string;
  readonly model: string;
  readonly prompt: Prompt;
  readonly maxOutputTokens: number | null;
  /** Monotonic time of the request's deadline. */
  readonly deadlineAtMs: number;
}

export interface Granted {
  readonly prefill: WorkerIdentity | null;
  readonly decode: WorkerAddress;
  readonly connector: string;
}

/** Asks the schedulers of one model over the bus. Every error is a value. */
export class Planner {
  readonly #config: FrontendConfig;
  readonly #ports: FrontendPorts;

  constructor(config: FrontendConfig, ports: FrontendPorts) {
    this.#config = config;
    this.#ports = ports;
  }

  async place(
    request: PlanRequest,
    attempt: number,
    excluded: readonly string[],
  ): Promise<Outcome<readonly Offer[], BatonError>> {
    const deadlineMs = this.#leftMs(request);
    const payload = place.encode({ ...this.#base(request, attempt, deadlineMs), excluded });
    const subject = subjectOf(request.model, "prefill", "place");
    const waitMs = Math.min(this.#config.placeDeadlineMs, deadlineMs);
    const reply = await this.#ports.bus.request(subject, payload, { deadlineMs: waitMs });
    if (!reply.ok) return fail(planError(reply.error, request.model));
    const answer = placed.decode(reply.value);
    if (!answer.ok) return answer;
    return answer.value.kind === "bound" ? ok(answer.value.candidates) : fail(answer.value.error);
  }

  async reserve(
    request: PlanRequest,
    attempt: number,
    offers: readonly Offer[],
    excluded: readonly string[],
  ): Promise<Outcome<Granted, BatonError>> {
    const candidates = offers.map(({ worker, isAggregated, connector }) => ({
      worker: { workerId: worker.workerId, incarnation: worker.incarnation },
      isAggregated,
      connector,
    }));
    const base = this.#base(request, attempt, this.#leftMs(request));
    const payload = reserve.encode({ ...base, candidates, excluded });
    const subject = subjectOf(request.model, "decode", "reserve");
    const deadlineMs = Math.min(this.#config.reserveDeadlineMs, this.#leftMs(request));
    const reply = await this.#ports.bus.request(subject, payload, { deadlineMs });
    if (!reply.ok) return fail(planError(reply.error, request.model));
    const answer = reserved.decode(reply.value);
    if (!answer.ok) return answer;
    const { value } = answer;
    if (value.kind === "refused") return fail(value.error);
    const { decode } = value;
    if (value.kind === "local") return ok({ prefill: null, decode, connector: "none" });
    const { prefill, connector } = value;
    if (connectorNamed(connector) !== undefined) return ok({ prefill, decode, connector });
    // Schedulers check names at start; one that this build does not know is a version mix.
    const message = `this frontend does not know connector ${connector}`;
    return fail(batonError("BATON_NO_COMPATIBLE_PAIR", message));
  }

  /** Asks the broker whether the handle may be presented; a broker out of reach means no. */
  async claim(
    request: PlanRequest,
    attempt: number,
    plan: Plan,
    facts: {
      readonly handleId: string;
      readonly ageMs: number;
      readonly promptTokens: number | null;
    },
  ): Promise<MessageOf<typeof handleAnswer>> {
    const payload = handle.encode({
      requestId: request.requestId,
      attempt,
      prefill: plan.prefill!,
      decode: plan.decode,
      connector: plan.connector,
      ...facts,
    });
    const subject = subjectOf(request.model, "decode", "handle");
    const deadlineMs = this.#config.claimDeadlineMs;
    const reply = await this.#ports.bus.request(subject, payload, { deadlineMs });
    if (!reply.ok) return { kind: "refused", reason: reply.error.message };
    const answer = handleAnswer.decode(reply.value);
    return answer.ok ? answer.value : { kind: "refused", reason: answer.error.message };
  }

  /** Tells both schedulers what became of an attempt. */
  report(request: PlanRequest, attempt: number, stage: StageReport): void {
    const { requestId, model } = request;
    const payload = outcome.encode({ requestId, attempt, frontend: this.#frontend(), stage });
    for (const pool of ["prefill", "decode"] as const) {
      const sent = this.#ports.bus.publish(subjectOf(model, pool, "outcome"), payload);
      if (sent.ok) continue;
      const { code } = sent.error;
      this.#ports.metrics.counter("baton_frontend_outcomes_unsent_total", { code }).add();
    }
  }

  #base(request: PlanRequest, attempt: number, deadlineMs: number) {
    const { requestId, prompt, maxOutputTokens } = request;
    return {
      requestId,
      attempt,
      frontend: this.#frontend(),
      ...prompt,
      maxOutputTokens,
      deadlineMs,
    };
  }

  #frontend(): { frontendId: string; incarnation: string } {
    const { frontendId, incarnation } = this.#config;
    return { frontendId, incarnation };
  }

  #leftMs(request: PlanRequest): number {
    return Math.max(1, Math.ceil(request.deadlineAtMs - this.#ports.clock.nowMs()));
  }
}

/** A model without a scheduler that answers is not ready; clients retry that, and not a 404. */
function planError(error: BatonError, model: string): BatonError {
  if (error.code !== "BATON_BUS_NO_RESPONDER") return error;
  return batonError("BATON_MODEL_NOT_READY", `no scheduler of ${model} answers`, {
    cause: error.message,
    retryAfterS: 1,
  });
}
