import { batonError, type ErrorCode } from "@baton/domain";
import { modelsBody, parseGenerateRequest } from "@baton/openai-api";
import type {
  BusSubscription,
  ClientRequest,
  FrontendApi,
  GetAnswer,
  ResponseSink,
  TimerHandle,
} from "@baton/ports";
import { anyModelSubject, fleet, frontendBeat, subjectOf } from "@baton/protocol";
import { askDecisions } from "./ask-decisions.ts";
import { ModelDirectory } from "./model-directory.ts";
import { Planner } from "./planner.ts";
import { readPrompt } from "./prompt.ts";
import { RequestSession } from "./request-session.ts";
import type { FrontendConfig, FrontendPorts } from "./settings.ts";

export interface Frontend extends FrontendApi {
  readonly directory: ModelDirectory;
  start(): Promise<void>;
  /** Takes no new requests, waits until the running ones are over or the deadline passes. */
  drain(deadlineMs: number): Promise<void>;
}

const beatMs = 1_000;

/** The router that clients talk to: stateless but for the requests whose sockets it holds. */
export function createFrontend(config: FrontendConfig, ports: FrontendPorts): Frontend {
  return new FrontendService(config, ports);
}

class FrontendService implements Frontend {
  readonly directory = new ModelDirectory();
  readonly #config: FrontendConfig;
  readonly #ports: FrontendPorts;
  readonly #planner: Planner;
  readonly #subscriptions: BusSubscription[] = [];
  #beat: TimerHandle | null = null;
  #live = 0;
  #isLeaving = false;
  #drained: Promise<void> | null = null;
  #onIdle: (() => void) | null = null;

  constructor(config: FrontendConfig, ports: FrontendPorts) {
    this.#config = config;
    this.#ports = ports;
    this.#planner = new Planner(config, ports);
    const { metrics } = ports;
    metrics.gauge("baton_frontend_tokenizer_info", { mode: config.tokenizerMode }).set(1);
    for (const route of ["chat", "completions"]) {
      metrics.counter("baton_frontend_requests_total", { route, result: "done" }).add(0);
    }
  }

  async start(): Promise<void> {
    const { bus, clock, logger, timers } = this.#ports;
    const subscription = bus.subscribe(anyModelSubject("*", "fleet"), {}, ({ payload }) => {
      const read = fleet.decode(payload);
      if (read.ok) this.directory.apply(read.value, clock.nowMs(), clock.wallMs());
      else logger.warn({ problem: read.error.message }, "fleet message refused");
    });
    this.#subscriptions.push(subscription);
    this.#beat = timers.every(beatMs, () => this.#tellBeat(false));
    await bus.flush();
  }

  generate(client: ClientRequest, sink: ResponseSink): void {
    const { clock, metrics } = this.#ports;
    const startedAtMs = clock.nowMs();
    this.#live += 1;
    metrics.gauge("baton_frontend_live_requests").set(this.#live);
    let isOver = false;
    const over = (result: string, isDone: boolean) => {
      if (isOver) return;
      isOver = true;
      this.#live -= 1;
      metrics.gauge("baton_frontend_live_requests").set(this.#live);
      metrics.counter("baton_frontend_requests_total", { route: client.route, result }).add();
      if (isDone) {
        const e2eS = (clock.nowMs() - startedAtMs) / 1_000;
        metrics.histogram("baton_frontend_e2e_seconds", { route: client.route }).observe(e2eS);
      }
      if (this.#live === 0) this.#onIdle?.();
    };
    void this.#serve(client, sink, startedAtMs, over);
  }

  models(): GetAnswer {
    return {
      status: 200,
      body: modelsBody(this.directory.models().map((each) => ({ ...each, parent: null }))),
    };
  }

  health(): GetAnswer {
    return { status: 200, body: { status: "ok" } };
  }

  ready(): GetAnswer {
    const missing = this.missing();
    return {
      status: missing.length === 0 ? 200 : 503,
      body: { ready: missing.length === 0, missing },
    };
  }

  async decisions(query: {
    readonly requestId: string | null;
    readonly limit: number;
  }): Promise<GetAnswer> {
    const models = this.directory.models().map(({ id }) => id);
    return { status: 200, body: await askDecisions(this.#ports.bus, models, query) };
  }

  drain(deadlineMs: number): Promise<void> {
    this.#drained ??= this.#drain(deadlineMs);
    return this.#drained;
  }

  missing(): string[] {
    if (this.#isLeaving) return ["draining"];
    const state = this.#ports.bus.state();
    if (state !== "connected") return [`bus is ${state}`];
    const models = this.directory.models();
    if (models.length === 0) return ["no scheduler was heard yet"];
    const missing = models.map(({ id }) => this.directory.missing(id, this.#ports.clock.nowMs()));
    return missing.some((each) => each.length === 0) ? [] : missing.flat();
  }

  async #serve(
    client: ClientRequest,
    sink: ResponseSink,
    startedAtMs: number,
    over: (result: string, isDone: boolean) => void,
  ): Promise<void> {
    let session: RequestSession | null = null;
    let isClosed = false;
    sink.onClose(() => {
      isClosed = true;
      session?.step({ kind: "client-closed" });
    });
    const refuse = (
      code: ErrorCode,
      message: string,
      more: { param?: string; retryAfterS?: number } = {},
    ) => {
      sink.error(batonError(code, message, more));
      over(code, false);
    };
    if (this.#isLeaving) return refuse("BATON_DRAINING", "this frontend is shutting down");
    if (this.#live > this.#config.requestsLiveMax) {
      const message = `this frontend serves ${this.#config.requestsLiveMax} requests at once`;
      return refuse("BATON_SATURATED", message, { retryAfterS: 1 });
    }
    const parsed = parseGenerateRequest(client.route, client.body);
    if (!parsed.ok) {
      sink.error(parsed.error);
      return over(parsed.error.code, false);
    }
    const { model, maxOutputTokens, unsplittable } = parsed.value;
    if (!this.directory.isKnown(model)) {
      const known = this.directory.models().map(({ id }) => id);
      // A client that is told 404 gives up; before the first word of a scheduler nobody knows better.
      if (known.length === 0) {
        const message = "no scheduler was heard yet";
        return refuse("BATON_MODEL_NOT_READY", message, { retryAfterS: 1 });
      }
      const message = `The model ${JSON.stringify(model)} does not exist. Known: ${known.join(", ")}.`;
      return refuse("BATON_UNKNOWN_MODEL", message, { param: "model" });
    }
    if (unsplittable !== null) {
      this.#ports.metrics.counter("baton_frontend_unsplit_total", { reason: unsplittable }).add();
    }
    const sizes = this.directory.indexBlockSizes(model);
    const prompt = await readPrompt(client, parsed.value, sizes, this.#ports);
    if (isClosed) return over("client-closed", false);
    session = new RequestSession({
      client,
      parsed: parsed.value,
      request: {
        requestId: client.requestId,
        model,
        prompt,
        maxOutputTokens,
        deadlineAtMs: startedAtMs + this.#config.deadlineMs,
      },
      sink,
      config: this.#config,
      ports: this.#ports,
      planner: this.#planner,
      startedAtMs,
      onOver: ({ end, code }) => over(end === "failed" ? (code ?? end) : end, end === "done"),
    });
    session.start();
  }

  async #drain(deadlineMs: number): Promise<void> {
    this.#isLeaving = true;
    if (this.#live > 0) {
      await new Promise<void>((resolve) => {
        const deadline = this.#ports.timers.after(deadlineMs, resolve);
        this.#onIdle = () => {
          deadline.cancel();
          resolve();
        };
      });
    }
    this.#beat?.cancel();
    this.#tellBeat(true);
    await this.#ports.bus.drain();
  }

  /** `isLeaving` frees all that this process holds, so it is said once nothing runs any more. */
  #tellBeat(isLeaving: boolean): void {
    const { frontendId, incarnation } = this.#config;
    const payload = frontendBeat.encode({
      frontend: { frontendId, incarnation },
      isLeaving,
      requestsLive: this.#live,
    });
    for (const { id } of this.directory.models()) {
      for (const pool of ["prefill", "decode"] as const) {
        this.#ports.bus.publish(subjectOf(id, pool, "frontend"), payload);
      }
    }
  }
}
