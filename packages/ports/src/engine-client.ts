import type { BatonError } from "@baton/domain";
import type { Outcome } from "@baton/kit";

/** One HTTP exchange with an engine. */
export interface EngineCall {
  readonly workerId: string;
  /** Scheme, host and port, without a trailing slash. */
  readonly url: string;
  readonly method: "GET" | "POST";
  readonly path: string;
  /** Lower-case names. Content-Length, Host and credentials are the client's business. */
  readonly headers: Readonly<Record<string, string>>;
  /** Chunks are sent one after the other and not copied. */
  readonly body: readonly Uint8Array[];
  /** From dispatch to the response's head. */
  readonly headersTimeoutMs: number;
  /** Between two pieces of the body. */
  readonly bodyTimeoutMs: number;
}

/** Why an exchange ended without its last byte. `dispatched`: the engine may have seen it. */
export interface EngineFault {
  readonly error: BatonError;
  readonly dispatched: boolean;
}

/** Calls come in this order: onHead, onData*, then exactly one of onEnd and onFault. */
export interface EngineHandler {
  onHead(status: number, headers: Readonly<Record<string, string>>): void;
  /** The bytes as they came; valid only during the call unless copied. */
  onData(bytes: Uint8Array): void;
  onEnd(): void;
  /** Also after `abort`, with BATON_CLIENT_CLOSED. */
  onFault(fault: EngineFault): void;
}

export interface EngineExchange {
  /** Closes the connection when the exchange has not ended. Idempotent. */
  abort(): void;
  /** Holds back onData; the connection's flow control does the rest. */
  pause(): void;
  resume(): void;
}

export interface EngineText {
  readonly status: number;
  readonly text: string;
}

export interface EngineClient {
  dispatch(call: EngineCall, handler: EngineHandler): EngineExchange;
  /** For polls and small answers; the whole body as text, at most `bodyLimitBytes`. */
  fetchText(
    call: Pick<EngineCall, "workerId" | "url" | "method" | "path"> & {
      readonly body?: string;
      readonly timeoutMs: number;
      readonly bodyLimitBytes: number;
    },
  ): Promise<Outcome<EngineText, BatonError>>;
  close(): Promise<void>;
}
