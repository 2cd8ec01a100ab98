import type { BatonError } from "@baton/domain";
import type { EngineCall, EngineExchange, EngineHandler, Logger } from "@baton/ports";
import type { Dispatcher } from "undici";
import { type ExchangeFacts, isConnectionLoss, toBatonError } from "./engine-fault.ts";
import { toDispatchOptions } from "./request-options.ts";
import type { WorkerPool } from "./worker-pool.ts";

class ClientAbort extends Error {}

/**
 * One exchange: undici's handler on one side, Baton's on the other. It keeps the promise that
 * exactly one of onEnd and onFault is called, that nothing follows, and that none of the handler's
 * methods runs inside a call that the owner makes.
 */
export class Exchange implements EngineExchange, Dispatcher.DispatchHandler {
  readonly #call: EngineCall;
  readonly #handler: EngineHandler;
  readonly #logger: Logger;
  #pool: WorkerPool | null = null;
  #request: Dispatcher.DispatchOptions | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  #facts: ExchangeFacts = { isStarted: false, isSent: false, isAnswered: false, hasHead: false };
  #isRetry = false;
  #isPaused = false;
  /** The outcome is fixed, though perhaps not yet told. */
  #isOver = false;

  constructor(call: EngineCall, handler: EngineHandler, logger: Logger) {
    this.#call = call;
    this.#handler = handler;
    this.#logger = logger;
  }

  /** Sends the request. Called once. */
  start(pool: WorkerPool, bearerToken: string | undefined): void {
    this.#pool = pool;
    pool.exchangesInFlight++;
    this.#request = toDispatchOptions(this.#call, bearerToken);
    pool.dispatch(this.#request, this);
  }

  /** Ends the exchange before it began. */
  refuse(error: BatonError): void {
    this.#fault(error, false);
  }

  abort(): void {
    if (this.#isOver) return;
    const message = `worker ${this.#call.workerId} at ${this.#call.url}: aborted by us`;
    this.#fault({ code: "BATON_CLIENT_CLOSED", message }, this.#facts.isStarted);
    // A request that still waits for its connection is stopped in onRequestStart.
    this.#controller?.abort(new ClientAbort("aborted"));
  }

  pause(): void {
    this.#isPaused = true;
    this.#controller?.pause();
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    // undici hands out buffered bytes inside its resume().
    queueMicrotask(() => {
      if (!this.#isPaused && !this.#isOver) this.#controller?.resume();
    });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#isOver) {
      controller.abort(new ClientAbort("aborted"));
      return;
    }
    this.#controller = controller;
    this.#facts.isStarted = true;
    if (this.#isPaused) controller.pause();
  }

  onRequestSent(): void {
    this.#facts.isSent = true;
  }

  onResponseStarted(): void {
    this.#facts.isAnswered = true;
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    // An informational answer (103) precedes the real one.
    if (this.#isOver || status < 200) return;
    this.#facts.hasHead = true;
    this.#guard(() => this.#handler.onHead(status, singleValues(headers)));
  }

  onResponseData(_controller: Dispatcher.DispatchController, bytes: Uint8Array): void {
    if (this.#isOver) return;
    try {
      this.#handler.onData(bytes);
    } catch (error) {
      this.#escape(error);
    }
  }

  onResponseEnd(): void {
    if (this.#isOver) return;
    this.#finish();
    this.#guard(() => this.#handler.onEnd());
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    if (this.#isOver) return;
    if (this.#mayRetry(error)) {
      this.#retry(error);
      return;
    }
    const { isStarted } = this.#facts;
    this.#fault(
      toBatonError(this.#call, this.#facts, error),
      isStarted && !this.#isIncomplete(error),
    );
  }

  /**
   * A lost connection is tried again, once, when that cannot run anything twice: a GET without an
   * answer, or a POST whose body the engine cannot have whole. A POST that went out whole is not
   * repeated even on a reused connection: an idle connection that the engine closed at that moment
   * looks the same from here as an engine that read the request and died.
   */
  #mayRetry(error: Error): boolean {
    const { isStarted, isAnswered } = this.#facts;
    if (this.#isRetry || !isStarted || isAnswered || !isConnectionLoss(error)) return false;
    return this.#call.method === "GET" || this.#isIncomplete(error);
  }

  /** Part of the request never left this host, so that no engine can have acted on it. */
  #isIncomplete(error: Error): boolean {
    if (this.#facts.isAnswered) return false;
    return !this.#facts.isSent || ("syscall" in error && error.syscall === "write");
  }

  #retry(error: Error): void {
    const { workerId, url } = this.#call;
    this.#logger.debug(
      { workerId, url, cause: error.message },
      "request repeated on a new connection",
    );
    this.#isRetry = true;
    this.#controller = null;
    this.#facts = { isStarted: false, isSent: false, isAnswered: false, hasHead: false };
    queueMicrotask(() => {
      if (!this.#isOver) this.#pool!.dispatchFresh(this.#request!, this);
    });
  }

  #fault(error: BatonError, dispatched: boolean): void {
    this.#finish();
    queueMicrotask(() => this.#handler.onFault({ error, dispatched }));
  }

  #finish(): void {
    this.#isOver = true;
    if (this.#pool !== null) this.#pool.exchangesInFlight--;
  }

  #guard(call: () => void): void {
    try {
      call();
    } catch (error) {
      this.#escape(error);
    }
  }

  /**
   * undici would turn a throw of the handler into a network error. It is a broken promise of our
   * own code and reaches the process as such.
   */
  #escape(error: unknown): void {
    if (!this.#isOver) this.#finish();
    this.#controller?.abort(new ClientAbort("the handler threw"));
    queueMicrotask(() => {
      throw error;
    });
  }
}

/** undici gives repeated headers as lists; one value each is what the contract promises. */
function singleValues(
  headers: Record<string, string | string[] | undefined>,
): Readonly<Record<string, string>> {
  for (const name in headers) {
    const value = headers[name];
    if (Array.isArray(value)) headers[name] = value.join(", ");
  }
  return headers as Record<string, string>;
}
