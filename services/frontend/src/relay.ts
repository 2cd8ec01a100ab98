import type { BatonError } from "@baton/domain";
import { batonError } from "@baton/domain";
import {
  joinChunks,
  relayHeaders,
  SseScanner,
  sseErrorEvent,
  UsageReader,
} from "@baton/openai-api";
import type { EngineExchange, EngineHandler, ResponseSink } from "@baton/ports";
import { judgeStatus, type Refusal } from "./leg.ts";

export type RelayEvent =
  | { readonly kind: "started" }
  | { readonly kind: "refused"; readonly refusal: Refusal }
  | { readonly kind: "failed"; readonly error: BatonError; readonly isWorkerFault: boolean }
  | { readonly kind: "ended"; readonly outputTokens: number | null };

const refusalBytesMax = 1024 * 1024;

/**
 * The decode answer on its way to the client: bytes pass as they come, once `open` says so. Nothing is
 * parsed on the way but line ends and, at the end, the last usage object.
 */
export class Relay implements EngineHandler {
  readonly #sink: ResponseSink;
  readonly #isStream: boolean;
  readonly #where: string;
  readonly #onEvent: (event: RelayEvent) => void;
  readonly #scanner = new SseScanner();
  readonly #usage = new UsageReader();
  #exchange: EngineExchange | null = null;
  #status = 0;
  #headers: Readonly<Record<string, string>> = {};
  /** Success by its status, and not by what it brings: read to its end and dropped. */
  #isGarbage = false;
  #isStarted = false;
  #isOpen = false;
  /** The first bytes, while the one who decides is told of them. */
  #first: Uint8Array | null = null;
  #refusal: Uint8Array[] = [];
  #refusalBytes = 0;

  constructor(options: {
    readonly sink: ResponseSink;
    readonly isStream: boolean;
    /** Names the worker in errors. */
    readonly where: string;
    onEvent(event: RelayEvent): void;
  }) {
    this.#sink = options.sink;
    this.#isStream = options.isStream;
    this.#where = options.where;
    this.#onEvent = options.onEvent;
  }

  attach(exchange: EngineExchange): void {
    this.#exchange = exchange;
  }

  /** Called in answer to `started`: from here on bytes go to the client, the first ones included. */
  open(): void {
    const length = this.#headers["content-length"];
    this.#sink.head(this.#status, {
      ...relayHeaders(this.#headers),
      // The bytes are the engine's own, so its length holds; a stream may get an event more.
      ...(length === undefined || this.#isStream ? {} : { "content-length": length }),
    });
    this.#isOpen = true;
    if (this.#first !== null) this.#write(this.#first);
  }

  /** The client took what waited for it. */
  drained(): void {
    this.#exchange?.resume();
  }

  abort(): void {
    this.#exchange?.abort();
  }

  /** Ends a started answer that cannot be finished so that no client takes it for a whole one. */
  break(error: BatonError): void {
    if (this.#isStream) {
      if (this.#scanner.isMidEvent) this.#sink.write(lineEnds);
      this.#sink.write(sseErrorEvent(error));
      this.#sink.end();
    } else this.#sink.destroy();
  }

  onHead(status: number, headers: Readonly<Record<string, string>>): void {
    this.#status = status;
    this.#headers = headers;
    this.#isGarbage = status === 200 && !this.#hasRightType();
  }

  onData(bytes: Uint8Array): void {
    if (this.#isGarbage) return;
    if (this.#status !== 200) {
      this.#refusalBytes += bytes.length;
      if (this.#refusalBytes <= refusalBytesMax) this.#refusal.push(new Uint8Array(bytes));
      return;
    }
    if (this.#isStream) this.#scanner.push(bytes);
    this.#usage.push(bytes);
    if (this.#isOpen) this.#write(bytes);
    else if (!this.#isStarted) {
      this.#isStarted = true;
      this.#first = bytes;
      this.#onEvent({ kind: "started" });
      this.#first = null;
    }
  }

  onEnd(): void {
    if (this.#isGarbage) {
      const type = this.#headers["content-type"] ?? "nothing";
      const message = `${this.#where} answered 200 with ${type}`;
      const error = batonError("BATON_ENGINE_GARBAGE", message);
      this.#onEvent({ kind: "failed", error, isWorkerFault: true });
      return;
    }
    if (this.#status !== 200) {
      this.#judge();
      return;
    }
    if (this.#isStream && !this.#scanner.isDone) {
      // Without the word itself: clients exist that look for it anywhere in a line.
      const message = `${this.#where} ended its stream before its last event`;
      const error = batonError("BATON_STREAM_BROKEN", message);
      this.#onEvent({ kind: "failed", error, isWorkerFault: true });
      return;
    }
    if (this.#isOpen) this.#sink.end();
    this.#onEvent({ kind: "ended", outputTokens: this.#usage.read()?.completionTokens ?? null });
  }

  /** A proxy's error page with status 200 must not reach a client as its answer. */
  #hasRightType(): boolean {
    const type = this.#headers["content-type"];
    if (type === undefined) return true; // it does not say, which is no lie
    return type.startsWith(this.#isStream ? "text/event-stream" : "application/json");
  }

  onFault({ error }: { readonly error: BatonError }): void {
    const isWorkerFault = error.code !== "BATON_CLIENT_CLOSED" && error.code !== "BATON_SATURATED";
    this.#onEvent({ kind: "failed", error, isWorkerFault });
  }

  #write(bytes: Uint8Array): void {
    if (!this.#sink.write(bytes)) this.#exchange?.pause();
  }

  #judge(): void {
    const body = joinChunks(this.#refusal);
    const text = new TextDecoder().decode(body);
    const judged = judgeStatus(this.#status, this.#where, text);
    if (judged.kind === "fault") {
      this.#onEvent({ ...judged, kind: "failed" });
      return;
    }
    const refusal = { status: this.#status, headers: relayHeaders(this.#headers), body };
    this.#onEvent({ kind: "refused", refusal });
  }
}

const lineEnds = new TextEncoder().encode("\n\n");
