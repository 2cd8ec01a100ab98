import { type Connector, connectorNamed } from "@baton/connectors";
import { type BatonError, batonError } from "@baton/domain";
import { assertNever, invariant } from "@baton/kit";
import { type GenerateRequest, readPrefillAnswer } from "@baton/openai-api";
import type { ClientRequest, EngineExchange, ResponseSink, TimerHandle } from "@baton/ports";
import { type FlowEffect, type FlowEvent, type Plan, RequestFlow } from "@baton/request-flow";
import { type Collected, collect } from "./collect.ts";
import { judgeStatus, legBody, legCall, type Refusal } from "./leg.ts";
import { type Planner, type PlanRequest, planError } from "./planner.ts";
import { Relay, type RelayEvent } from "./relay.ts";
import type { FrontendConfig, FrontendPorts } from "./settings.ts";

/** A handle as the prefill engine sent it. */
interface HeldHandle {
  readonly json: string;
  readonly handleId: string;
  readonly answeredAtMs: number;
  readonly promptTokens: number | null;
}

const utf8 = new TextDecoder();

/** Carries out what the request's state machine says, and tells it what happened. */
export class RequestSession {
  readonly #client: ClientRequest;
  readonly #parsed: GenerateRequest;
  readonly #request: PlanRequest;
  readonly #sink: ResponseSink;
  readonly #config: FrontendConfig;
  readonly #ports: FrontendPorts;
  readonly #planner: Planner;
  readonly #flow: RequestFlow;
  readonly #onOver: (effect: Extract<FlowEffect, { kind: "over" }>) => void;
  readonly #startedAtMs: number;
  readonly #timers: TimerHandle[] = [];
  #wait: TimerHandle | null = null;
  #prefill: EngineExchange | null = null;
  #relay: Relay | null = null;
  #handle: HeldHandle | null = null;
  #refusal: Refusal | null = null;
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
    this.#parsed = options.parsed;
    this.#request = options.request;
    this.#sink = options.sink;
    this.#config = options.config;
    this.#ports = options.ports;
    this.#planner = options.planner;
    this.#startedAtMs = options.startedAtMs;
    this.#onOver = options.onOver;
    this.#flow = new RequestFlow({ ...options.config, unsplittable: options.parsed.unsplittable });
  }

  start(): void {
    this.#sink.onDrain(() => this.#relay?.drained());
    const leftMs = this.#request.deadlineAtMs - this.#ports.clock.nowMs();
    this.#timers.push(this.#ports.timers.after(leftMs, () => this.step({ kind: "deadline" })));
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
        this.#sendPrefill(effect.attempt, effect.plan);
        return;
      case "abort-prefill":
        this.#prefill?.abort();
        return;
      case "claim":
        this.#claim(effect.attempt, effect.plan);
        return;
      case "send-decode":
      case "send-abandon":
        this.#sendDecode(effect.attempt, effect.plan, effect.kind === "send-abandon");
        return;
      case "abort-decode":
        this.#relay?.abort();
        return;
      case "relay":
        this.#relay!.open();
        this.#observeTtft();
        return;
      case "pass-refusal":
        this.#passRefusal();
        return;
      case "respond":
        this.#sink.error(planError(effect.error, this.#request.model));
        return;
      case "break":
        this.#relay!.break(effect.error);
        return;
      case "report":
        this.#planner.report(this.#request, effect.attempt, effect.stage);
        return;
      case "wait":
        this.#wait?.cancel();
        this.#relay?.mute();
        this.#wait = this.#ports.timers.after(effect.ms, () => this.step({ kind: "waited" }));
        return;
      case "over":
        this.#wait?.cancel();
        for (const timer of this.#timers) timer.cancel();
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

  #sendPrefill(attempt: number, plan: Plan): void {
    const connector = this.#connector(plan);
    const worker = plan.prefill!;
    const where = `prefill worker ${worker.workerId} at ${worker.url}`;
    const sentAtMs = this.#ports.clock.nowMs();
    const body = legBody(this.#client, this.#parsed, connector.prefillLeg(this.#client.route));
    const call = legCall(this.#client, attempt, worker, body, this.#config);
    const handler = collect(where, (result) => {
      this.#prefill = null;
      if (!result.ok) {
        const { error } = result;
        const isWorkerFault =
          error.code !== "BATON_CLIENT_CLOSED" && error.code !== "BATON_SATURATED";
        this.step({ kind: "prefill-failed", attempt, error, isWorkerFault });
      } else this.step(this.#readPrefill(attempt, where, plan, result.value, sentAtMs));
    });
    this.#prefill = this.#ports.engineClient.dispatch(call, handler);
  }

  #readPrefill(
    attempt: number,
    where: string,
    plan: Plan,
    answer: Collected,
    sentAtMs: number,
  ): FlowEvent {
    const nowMs = this.#ports.clock.nowMs();
    if (answer.status !== 200) {
      const judged = judgeStatus(answer.status, where, utf8.decode(answer.body));
      if (judged.kind === "fault") return { ...judged, kind: "prefill-failed", attempt };
      this.#refusal = answer;
      return { kind: "prefill-rejected", attempt };
    }
    const failed = (problem: string): FlowEvent => {
      const error = batonError("BATON_ENGINE_GARBAGE", `${where}: ${problem}`);
      return { kind: "prefill-failed", attempt, error, isWorkerFault: true };
    };
    const read = readPrefillAnswer(answer.body);
    if (!read.ok) return failed(read.error.message);
    const { kvTransferParams, usage } = read.value;
    const json = kvTransferParams === null ? "null" : utf8.decode(kvTransferParams);
    const promptTokens = usage?.promptTokens ?? null;
    const ours = this.#request.prompt.promptTokens;
    if (ours !== null && promptTokens !== null && ours !== promptTokens) {
      this.#ports.logger.warn(
        { requestId: this.#client.requestId, ours, engine: promptTokens },
        "token counts differ: the index of this prompt is wrong",
      );
    }
    const { blockSizeTokens } = plan;
    const checked = this.#connector(plan).checkAnswer(JSON.parse(json), {
      promptTokens,
      blockSizeTokens,
    });
    if (!checked.ok) return failed(checked.error);
    const { handleId } = checked.value;
    this.#handle = { json, handleId, answeredAtMs: nowMs, promptTokens };
    const cachedTokens = usage?.cachedTokens ?? null;
    return {
      kind: "prefill-answered",
      attempt,
      legMs: nowMs - sentAtMs,
      cachedTokens,
      promptTokens,
    };
  }

  #claim(attempt: number, plan: Plan): void {
    const held = this.#handle;
    invariant(held !== null, "a claim follows an answer with a handle");
    const ageMs = this.#ports.clock.nowMs() - held.answeredAtMs;
    const { handleId, promptTokens } = held;
    const facts = { handleId, ageMs, promptTokens };
    void this.#planner.claim(this.#request, attempt, plan, facts).then((answer) => {
      if (answer.kind === "claimed") this.step({ kind: "claimed", attempt });
      else this.step({ kind: "claim-refused", attempt, reason: answer.reason });
    });
  }

  #sendDecode(attempt: number, plan: Plan, isAbandoned: boolean): void {
    const { route } = this.#client;
    const connector = this.#connector(plan);
    const json = plan.prefill === null ? "null" : this.#handle!.json;
    this.#handle = null; // presented once
    if (isAbandoned) this.#ports.metrics.counter("baton_frontend_abandoned_legs_total").add();
    const edit = isAbandoned ? connector.abandonLeg(route, json) : connector.decodeLeg(json);
    const body = legBody(this.#client, this.#parsed, edit);
    const worker = plan.decode;
    const sentAtMs = this.#ports.clock.nowMs();
    const relay = new Relay({
      sink: this.#sink,
      isStream: isAbandoned || this.#parsed.isStream,
      where: `decode worker ${worker.workerId} at ${worker.url}`,
      onEvent: (event) => this.#onRelay(attempt, event, sentAtMs),
    });
    this.#relay = relay;
    if (isAbandoned) relay.mute();
    const call = legCall(this.#client, attempt, worker, body, this.#config);
    relay.attach(this.#ports.engineClient.dispatch(call, relay));
  }

  #onRelay(attempt: number, event: RelayEvent, sentAtMs: number): void {
    switch (event.kind) {
      case "started": {
        const legMs = this.#ports.clock.nowMs() - sentAtMs;
        this.step({ kind: "decode-started", attempt, legMs });
        return;
      }
      case "refused":
        this.#refusal = event.refusal;
        this.step({ kind: "decode-rejected", attempt });
        return;
      case "failed":
        this.step({ ...event, kind: "decode-failed", attempt });
        return;
      case "ended":
        this.#ports.metrics
          .counter("baton_frontend_output_tokens_total")
          .add(event.outputTokens ?? 0);
        this.step({ kind: "decode-ended", attempt, outputTokens: event.outputTokens });
        return;
      default:
        assertNever(event);
    }
  }

  #passRefusal(): void {
    const { status, headers, body } = this.#refusal!;
    this.#sink.whole(status, headers, body);
  }

  #observeTtft(): void {
    const { route } = this.#client;
    const ttftMs = this.#ports.clock.nowMs() - this.#startedAtMs;
    this.#ports.metrics.histogram("baton_frontend_ttft_seconds", { route }).observe(ttftMs / 1_000);
  }

  #connector(plan: Plan): Connector {
    const connector = connectorNamed(plan.connector);
    if (connector === undefined) throw unknownConnector(plan.connector);
    return connector;
  }
}

/** Schedulers check names at start; a name that this build does not know is a version mix. */
function unknownConnector(name: string): BatonError {
  return batonError("BATON_NO_COMPATIBLE_PAIR", `this frontend does not know connector ${name}`);
}
