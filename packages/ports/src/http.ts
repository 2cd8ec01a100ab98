import type { BatonError } from "@baton/domain";

export type Route = "chat" | "completions";

/** A generation request as it came in; body not parsed. */
export interface ClientRequest {
  /** Unique in the fleet; also what the client sees as x-request-id. */
  readonly requestId: string;
  readonly route: Route;
  /** Lower-case names. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Uint8Array;
  /** Name of the API key, null when keys are off. */
  readonly tenant: string | null;
}

/**
 * Where an answer goes: either one `error` / `whole`, or `head`, `write`*, `end`.
 * It stands between the relay and the socket, so that a raw-socket path can replace fastify's.
 */
export interface ResponseSink {
  /**
   * Sends status and headers now, names in lower case. With a `content-length` exactly that many bytes
   * follow; without one the body is framed as it comes.
   */
  head(status: number, headers: Readonly<Record<string, string>>): void;
  /** The bytes are taken over (copied or written) during the call. False: full, wait for onDrain. */
  write(bytes: Uint8Array): boolean;
  end(): void;
  /** Status, headers and whole body at once. */
  whole(status: number, headers: Readonly<Record<string, string>>, body: Uint8Array | string): void;
  /** OpenAI error object with the catalogue's status. */
  error(error: BatonError): void;
  /** Ends the connection without a proper end, when a started answer cannot be finished. */
  destroy(): void;
  /** The client went away before `end`; at most once, never after `end`. */
  onClose(listener: () => void): void;
  onDrain(listener: () => void): void;
}

export interface GetAnswer {
  readonly status: number;
  readonly body: unknown;
}

/** What a frontend offers to an HTTP server. */
export interface FrontendApi {
  generate(request: ClientRequest, sink: ResponseSink): void;
  models(): GetAnswer;
  /** Liveness: the process works. */
  health(): GetAnswer;
  /** Readiness: requests can be served; the body says what is missing. */
  ready(): GetAnswer;
  /** Decision records of one request, from both schedulers, newest first. */
  decisions(query: {
    readonly requestId: string | null;
    readonly limit: number;
  }): Promise<GetAnswer>;
}
