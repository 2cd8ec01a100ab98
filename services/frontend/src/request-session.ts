import { assertNever } from "@baton/kit";
import type { GenerateRequest } from "@baton/openai-api";
import type { ClientRequest, ResponseSink, TimerHandle } from "@baton/ports";
import { type FlowEffect, type FlowEvent, type Plan, RequestFlow } from "@baton/request-flow";
import { EngineLegs } from "./engine-legs.ts";
import type { Planner, PlanRequest } from "./planner.ts";
import type { FrontendConfig, FrontendPorts } from "./settings.ts";

/** Carries out what the request's state machine says, and tells it what happened. */
export class RequestSession {
  readonly #client: ClientRequest;
  readonly #request: PlanRequest;
  readonly #sink: ResponseSink;
  readonly #ports: FrontendPorts;
  readonly #planner: Planner;
  readonly #flow: RequestFlow;
  readonly #legs: EngineLegs;
  readonly #onOver: (effect: Extract<FlowEffect, { kind: "over" }>) => void;
  readonly #startedAtMs: number;
  #deadline: TimerHandle | null = null;
  #wait: TimerHandle | null = null;
  #placedAtMs = 0;

  constructor(options: {
    readonly client: ClientRequest;
    readonly parsed: GenerateRequest;
    readonly request: PlanRequest;
    readonly sink: ResponseSink;
    readonly config: FrontendConfig;
    readonly ports: FrontendPorts;
    readonly planner: Planner;
    readonly startedAtMs: number;
    onOver(effect: Extract<FlowEffect, { kind: "over" }>): void;
  }) {
    this.#client = options.client;
    this.#request = options.request;
    this.#sink = options.sink;
    this.#ports = options.ports;
    this.#planner = options.planner;
    this.#startedAtMs = options.startedAtMs;
    this.#onOver = options.onOver;
    this.#flow = new RequestFlow({ ...options.config, unsplittable: options.parsed.unsplittable });
    const { promptTokens } = options.request.prompt;
    this.#legs = new EngineLegs({
      ...options,
      promptTokens,
      onEvent: (event) => this.step(event),
    });
  }

  start(): void {
    const leftMs = this.#request.deadlineAtMs - this.#ports.clock.nowMs();
    this.#deadline = this.#ports.timers.after(leftMs, () => this.step({ kind: "deadline" }));
    this.step({ kind: "start" });
  }

  step(event: FlowEvent): void {
    for (const effect of this.#flow.step(event, this.#ports.clock.nowMs())) this.#perform(effect);
  }

  #perform(effect: FlowEffect): void {
    switch (effect.kind) {
      case "place":
        this.#place(effect.attempt, effect.excluded);
        return;
      case "reserve":
        this.#reserve(effect);
        return;
      case "send-prefill":
        this.#legs.sendPrefill(effect.attempt, effect.plan);
        return;
      case "abort-prefill":
        this.#legs.abortPrefill();
        return;
      case "claim":
        this.#claim(effect.attempt, effect.plan);
        return;
      case "send-decode":
      case "send-abandon":
        this.#legs.sendDecode(effect.attempt, effect.plan, effect.kind === "send-abandon");
        return;
      case "abort-decode":
        this.#legs.abortDecode();
        return;
      case "relay":
        this.#legs.openRelay();
        this.#observeTtft();
        return;
      case "pass-refusal":
        this.#legs.passRefusal();
        return;
      case "respond":
        this.#sink.error(effect.error);
        return;
      case "break":
        this.#legs.breakRelay(effect.error);
        return;
      case "report":
        this.#planner.report(this.#request, effect.attempt, effect.stage);
        return;
      case "wait":
        this.#wait?.cancel();
        this.#wait = this.#ports.timers.after(effect.ms, () => this.step({ kind: "waited" }));
        return;
      case "over":
        this.#wait?.cancel();
        this.#deadline?.cancel();
        this.#onOver(effect);
        return;
      default:
        assertNever(effect);
    }
  }

  #place(attempt: number, excluded: readonly string[]): void {
    if (attempt > 1) this.#ports.metrics.counter("baton_frontend_attempts_retried_total").add();
    this.#placedAtMs = this.#ports.clock.nowMs();
    void this.#planner.place(this.#request, attempt, excluded).then((answer) => {
      if (answer.ok) this.step({ kind: "placed", attempt, offers: answer.value });
      else this.step({ kind: "place-failed", attempt, error: answer.error });
    });
  }

  #reserve(effect: Extract<FlowEffect, { kind: "reserve" }>): void {
    const { attempt, offers, excluded } = effect;
    void this.#planner.reserve(this.#request, attempt, offers, excluded).then((answer) => {
      if (!answer.ok) {
        this.step({ kind: "reserve-failed", attempt, error: answer.error });
        return;
      }
      if (offers.length > 0) {
        const planMs = this.#ports.clock.nowMs() - this.#placedAtMs;
        this.#ports.metrics.histogram("baton_frontend_plan_seconds").observe(planMs / 1_000);
      }
      this.step({ ...answer.value, kind: "reserved", attempt });
    });
  }

  #claim(attempt: number, plan: Plan): void {
    const facts = this.#legs.handleFacts();
    const askedAtMs = this.#ports.clock.nowMs();
    void this.#planner.claim(this.#request, attempt, plan, facts).then((answer) => {
      const waitedMs = this.#ports.clock.nowMs() - askedAtMs;
      if (answer.kind === "refused") {
        this.step({ kind: "claim-refused", attempt, reason: answer.reason });
      } else if (waitedMs > answer.presentWithinMs) {
        const reason = `the grant came ${Math.round(waitedMs)} ms late`;
        this.step({ kind: "claim-refused", attempt, reason });
      } else this.step({ kind: "claimed", attempt });
    });
  }

  #observeTtft(): void {
    const { route } = this.#client;
    const ttftMs = this.#ports.clock.nowMs() - this.#startedAtMs;
    this.#ports.metrics.histogram("baton_frontend_ttft_seconds", { route }).observe(ttftMs / 1_000);
  }
}
