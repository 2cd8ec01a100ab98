import type { KvEvent } from "@baton/domain";
import type { EngineModel, EngineRequest, Happening } from "@baton/engine-model";
import { assertNever } from "@baton/kit";
import type { EngineClock } from "./engine-clock.ts";

/** What a request's owner hears, in order; `flush` once after all of one moment's calls. */
export interface RequestListener {
  onAdmitted(hitTokens: number, atMs: number): void;
  /** The last `blocks` blocks have to come from elsewhere. */
  onPull(blocks: number, atMs: number): void;
  onTransferred(atMs: number): void;
  onPrefilled(fromToken: number, toToken: number): void;
  onToken(token: Happening & { kind: "token" }): void;
  onFinished(end: Happening & { kind: "finished" }): void;
  flush(): void;
}

export interface EngineRuntimeOptions {
  readonly model: EngineModel;
  readonly clock: EngineClock;
  readonly onEvents: (events: readonly KvEvent[], atMs: number) => void;
  readonly onStep: (tokens: number) => void;
}

/** Drives one model with one real timer, and hands out what happens. */
export class EngineRuntime {
  readonly #model: EngineModel;
  readonly #clock: EngineClock;
  readonly #onEvents: EngineRuntimeOptions["onEvents"];
  readonly #onStep: EngineRuntimeOptions["onStep"];
  readonly #listeners = new Map<string, RequestListener>();
  readonly #touched = new Set<RequestListener>();
  #timer: NodeJS.Timeout | null = null;
  #timerAtMs = 0;
  #isDispatching = false;

  constructor(options: EngineRuntimeOptions) {
    this.#model = options.model;
    this.#clock = options.clock;
    this.#onEvents = options.onEvents;
    this.#onStep = options.onStep;
  }

  submit(request: EngineRequest, listener: RequestListener): void {
    this.#listeners.set(request.id, listener);
    this.#model.submit(request, this.#clock.nowMs());
    this.#dispatch();
  }

  abort(requestId: string): void {
    this.#listeners.delete(requestId);
    this.#model.abort(requestId, this.#clock.nowMs());
    this.#dispatch();
  }

  beginTransfer(requestId: string): void {
    this.#model.beginTransfer(requestId, this.#clock.nowMs());
    this.#dispatch();
  }

  deliver(requestId: string, contents: Uint32Array): void {
    this.#model.deliver(requestId, contents, this.#clock.nowMs());
    this.#dispatch();
  }

  releaseExport(requestId: string): void {
    this.#model.releaseExport(requestId, this.#clock.nowMs());
    this.#dispatch();
  }

  heartbeat(requestIds: readonly string[]): void {
    this.#model.heartbeat(requestIds, this.#clock.nowMs());
    this.#dispatch();
  }

  close(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#listeners.clear();
  }

  /** Listeners may call back in; what that causes is handed out in the same loop. */
  #dispatch(): void {
    if (this.#isDispatching) return;
    this.#isDispatching = true;
    for (let log = this.#model.drain(); log.length > 0; log = this.#model.drain()) {
      for (const happening of log) this.#tell(happening);
      const touched = [...this.#touched];
      this.#touched.clear();
      for (const listener of touched) listener.flush();
    }
    this.#isDispatching = false;
    this.#arm();
  }

  #tell(happening: Happening): void {
    if (happening.kind === "events") {
      this.#onEvents(happening.events, happening.atMs);
      return;
    }
    if (happening.kind === "step") {
      this.#onStep(happening.tokens);
      return;
    }
    const listener = this.#listeners.get(happening.requestId);
    if (listener === undefined) return;
    this.#touched.add(listener);
    if (happening.kind === "finished") this.#listeners.delete(happening.requestId);
    tellListener(listener, happening);
  }

  /** One timer, for the next thing that is due. */
  #arm(): void {
    const wakeMs = this.#model.nextWakeMs();
    if (this.#timer !== null) {
      if (wakeMs === this.#timerAtMs) return;
      clearTimeout(this.#timer);
      this.#timer = null;
    }
    if (wakeMs === null) return;
    this.#timerAtMs = wakeMs;
    // Rounded up: a timer that fires early finds nothing due and only costs a second one.
    const delayMs = Math.max(0, Math.ceil(this.#clock.untilMs(wakeMs)));
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#model.advance(this.#clock.nowMs());
      this.#dispatch();
    }, delayMs);
  }
}

function tellListener(
  listener: RequestListener,
  happening: Exclude<Happening, { kind: "events" | "step" }>,
): void {
  switch (happening.kind) {
    case "admitted":
      listener.onAdmitted(happening.hitTokens, happening.atMs);
      break;
    case "pull":
      listener.onPull(happening.blocks, happening.atMs);
      break;
    case "transferred":
      listener.onTransferred(happening.atMs);
      break;
    case "prefilled":
      listener.onPrefilled(happening.fromToken, happening.toToken);
      break;
    case "token":
      listener.onToken(happening);
      break;
    case "finished":
      listener.onFinished(happening);
      break;
    case "expired":
      break;
    default:
      assertNever(happening);
  }
}
