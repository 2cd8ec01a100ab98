import { type Connector, connectorNamed } from "@baton/connectors";
import type { BatonError } from "@baton/domain";
import { assertNever, invariant } from "@baton/kit";
import type { GenerateRequest } from "@baton/openai-api";
import type { ClientRequest, EngineExchange, ResponseSink } from "@baton/ports";
import type { FlowEvent, Plan } from "@baton/request-flow";
import { type Collected, collect } from "./collect.ts";
import { legBody, legCall, type Refusal } from "./leg.ts";
import { readPrefillLeg } from "./prefill-answer.ts";
import { Relay, type RelayEvent } from "./relay.ts";
import type { FrontendConfig, FrontendPorts } from "./settings.ts";

/** A handle as the prefill engine sent it. */
interface HeldHandle {
  readonly json: string;
  readonly handleId: string;
  readonly answeredAtMs: number;
  readonly promptTokens: number | null;
}

/** The engines' side of one request: its legs, and the handle that goes from one to the other. */
export class EngineLegs {
  readonly #client: ClientRequest;
  readonly #parsed: GenerateRequest;
  readonly #promptTokens: number | null;
  readonly #sink: ResponseSink;
  readonly #config: FrontendConfig;
  readonly #ports: FrontendPorts;
  readonly #onEvent: (event: FlowEvent) => void;
  #prefill: EngineExchange | null = null;
  #relay: Relay | null = null;
  #handle: HeldHandle | null = null;
  #refusal: Refusal | null = null;

  constructor(options: {
    readonly client: ClientRequest;
    readonly parsed: GenerateRequest;
    /** Our own count; null when the prompt was not tokenised. */
    readonly promptTokens: number | null;
    readonly sink: ResponseSink;
    readonly config: FrontendConfig;
    readonly ports: FrontendPorts;
    onEvent(event: FlowEvent): void;
  }) {
    this.#client = options.client;
    this.#parsed = options.parsed;
    this.#promptTokens = options.promptTokens;
    this.#sink = options.sink;
    this.#config = options.config;
    this.#ports = options.ports;
    this.#onEvent = options.onEvent;
    this.#sink.onDrain(() => this.#relay?.drained());
  }

  sendPrefill(attempt: number, plan: Plan): void {
    const connector = connectorOf(plan);
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
        this.#onEvent({ kind: "prefill-failed", attempt, error, isWorkerFault });
      } else this.#onEvent(this.#prefillEvent(attempt, where, plan, result.value, sentAtMs));
    });
    this.#prefill = this.#ports.engineClient.dispatch(call, handler);
  }

  abortPrefill(): void {
    this.#prefill?.abort();
  }

  /** What the broker is told of the handle that the prefill leg brought. */
  handleFacts(): { handleId: string; ageMs: number; promptTokens: number | null } {
    invariant(this.#handle !== null, "a claim follows an answer with a handle");
    const { handleId, answeredAtMs, promptTokens } = this.#handle;
    return { handleId, ageMs: this.#ports.clock.nowMs() - answeredAtMs, promptTokens };
  }

  /** `isAbandoned`: only so that the prefill engine frees its blocks; nobody reads the answer. */
  sendDecode(attempt: number, plan: Plan, isAbandoned: boolean): void {
    const { route } = this.#client;
    const connector = connectorOf(plan);
    const json = plan.prefill === null ? "null" : this.#handle!.json;
    this.#handle = null; // presented once
    if (isAbandoned) this.#ports.metrics.counter("baton_frontend_abandoned_legs_total").add();
    const edit = isAbandoned ? connector.abandonLeg(route, json) : connector.decodeLeg(json);
    const body = legBody(this.#client, this.#parsed, edit);
    const worker = plan.decode;
    const sentAtMs = this.#ports.clock.nowMs();
    const relay = new Relay({
      sink: this.#sink,
      // The leg that only frees blocks asks for a stream, to be told of the first byte.
      isStream: isAbandoned || this.#parsed.isStream,
      where: `decode worker ${worker.workerId} at ${worker.url}`,
      onEvent: (event) => this.#onRelay(attempt, event, sentAtMs),
    });
    this.#relay = relay;
    const call = legCall(this.#client, attempt, worker, body, this.#config);
    relay.attach(this.#ports.engineClient.dispatch(call, relay));
  }

  abortDecode(): void {
    this.#relay?.abort();
  }

  /** Lets the decode answer through to the client. */
  openRelay(): void {
    this.#relay!.open();
  }

  breakRelay(error: BatonError): void {
    this.#relay!.break(error);
  }

  passRefusal(): void {
    const { status, headers, body } = this.#refusal!;
    this.#sink.whole(status, headers, body);
  }

  #prefillEvent(
    attempt: number,
    where: string,
    plan: Plan,
    answer: Collected,
    sentAtMs: number,
  ): FlowEvent {
    const { blockSizeTokens } = plan;
    const result = readPrefillLeg(answer, { where, connector: connectorOf(plan), blockSizeTokens });
    if (result.kind === "failed") return { ...result, kind: "prefill-failed", attempt };
    if (result.kind === "refused") {
      this.#refusal = result.refusal;
      return { kind: "prefill-rejected", attempt };
    }
    const { json, handleId, cachedTokens, promptTokens } = result;
    const ours = this.#promptTokens;
    if (ours !== null && promptTokens !== null && ours !== promptTokens) {
      this.#ports.logger.warn(
        { requestId: this.#client.requestId, ours, engine: promptTokens },
        "token counts differ: the index of this prompt is wrong",
      );
    }
    const nowMs = this.#ports.clock.nowMs();
    this.#handle = { json, handleId, answeredAtMs: nowMs, promptTokens };
    const legMs = nowMs - sentAtMs;
    return { kind: "prefill-answered", attempt, legMs, cachedTokens, promptTokens };
  }

  #onRelay(attempt: number, event: RelayEvent, sentAtMs: number): void {
    switch (event.kind) {
      case "started": {
        const legMs = this.#ports.clock.nowMs() - sentAtMs;
        this.#onEvent({ kind: "decode-started", attempt, legMs });
        return;
      }
      case "refused":
        this.#refusal = event.refusal;
        this.#onEvent({ kind: "decode-rejected", attempt });
        return;
      case "failed":
        this.#onEvent({ ...event, kind: "decode-failed", attempt });
        return;
      case "ended": {
        const { outputTokens } = event;
        this.#ports.metrics.counter("baton_frontend_output_tokens_total").add(outputTokens ?? 0);
        this.#onEvent({ kind: "decode-ended", attempt, outputTokens });
        return;
      }
      default:
        assertNever(event);
    }
  }
}

function connectorOf(plan: Plan): Connector {
  const connector = connectorNamed(plan.connector);
  invariant(connector !== undefined, "the planner lets only known connectors through");
  return connector;
}
