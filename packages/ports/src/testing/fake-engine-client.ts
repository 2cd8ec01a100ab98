import { type BatonError, batonError } from "@baton/domain";
import { invariant, type Outcome, ok } from "@baton/kit";
import type {
  EngineCall,
  EngineClient,
  EngineExchange,
  EngineHandler,
  EngineText,
} from "../engine-client.ts";

type FetchCall = Parameters<EngineClient["fetchText"]>[0];

/** Engines that a test plays: it sees each exchange and answers it when it likes. */
export class FakeEngineClient implements EngineClient {
  readonly exchanges: FakeExchange[] = [];
  readonly fetches: FetchCall[] = [];
  /** Called in a turn of its own, so that it may answer at once. */
  onDispatch: (exchange: FakeExchange) => void = () => {};
  onFetch: (call: FetchCall) => Outcome<EngineText, BatonError> = () =>
    ok({ status: 404, text: "" });

  dispatch(call: EngineCall, handler: EngineHandler): EngineExchange {
    const exchange = new FakeExchange(call, handler);
    this.exchanges.push(exchange);
    queueMicrotask(() => this.onDispatch(exchange));
    return exchange;
  }

  fetchText(call: FetchCall): Promise<Outcome<EngineText, BatonError>> {
    this.fetches.push(call);
    return Promise.resolve(this.onFetch(call));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/**
 * The engine's side of one exchange. It keeps the port's promises to the handler: order, one end,
 * nothing while paused, and no call from inside `dispatch`, `abort` or `resume`.
 */
export class FakeExchange implements EngineExchange {
  readonly call: EngineCall;
  readonly #handler: EngineHandler;
  readonly #held: (() => void)[] = [];
  isAborted = false;
  isPaused = false;
  /** The handler got its last call, or will in this turn. */
  isOver = false;

  constructor(call: EngineCall, handler: EngineHandler) {
    this.call = call;
    this.#handler = handler;
  }

  /** The request's body as one text. */
  get body(): string {
    return this.call.body.map((chunk) => new TextDecoder().decode(chunk)).join("");
  }

  head(status: number, headers: Readonly<Record<string, string>> = {}): void {
    this.#tell(() => this.#handler.onHead(status, headers));
  }

  data(bytes: string | Uint8Array): void {
    // A Buffer, as a socket gives it: its `slice` is a view and no copy.
    const own = typeof bytes === "string" ? Buffer.from(bytes, "utf8") : Buffer.from(bytes);
    this.#tell(() => {
      this.#handler.onData(own);
      own.fill(0); // valid only during the call
    });
  }

  end(): void {
    this.#tell(() => {
      this.isOver = true;
      this.#handler.onEnd();
    });
  }

  fault(error: BatonError, dispatched = true): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#handler.onFault({ error, dispatched });
  }

  answer(status: number, headers: Readonly<Record<string, string>>, body: string): void {
    this.head(status, headers);
    if (body !== "") this.data(body);
    this.end();
  }

  abort(): void {
    if (this.isOver) return;
    this.isAborted = true;
    this.isOver = true;
    const error = batonError("BATON_CLIENT_CLOSED", `worker ${this.call.workerId}: aborted by us`);
    queueMicrotask(() => this.#handler.onFault({ error, dispatched: true }));
  }

  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    if (!this.isPaused) return;
    this.isPaused = false;
    queueMicrotask(() => {
      while (!this.isPaused && !this.isOver) {
        const next = this.#held.shift();
        if (next === undefined) return;
        next();
      }
    });
  }

  #tell(call: () => void): void {
    if (this.isOver) return;
    invariant(this.#held.length < 10_000, "a test holds no more pieces than that");
    if (this.isPaused || this.#held.length > 0) this.#held.push(call);
    else call();
  }
}
