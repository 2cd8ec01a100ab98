import type { FrontendApi, Logger } from "@baton/ports";

export interface HttpEdgeLimits {
  /** Largest request body. */
  readonly bodyLimitBytes: number;
  /** Bodies held at a time, all requests together; above it new ones are turned away. */
  readonly bodiesBytesMax: number;
  /** From the first byte of a request to its last. Answers have no limit here. */
  readonly uploadTimeoutMs: number;
  /** Idle connections; above the 60 s after which load balancers stop using theirs. */
  readonly keepAliveTimeoutMs: number;
  /** A client that reads too slowly is cut off when this much waits for it… */
  readonly sinkBufferBytesMax: number;
  /** …or when what waits is not taken for this long. */
  readonly sinkStallMsMax: number;
}

export const httpEdgeDefaults: HttpEdgeLimits = {
  bodyLimitBytes: 32 * 1024 * 1024,
  bodiesBytesMax: 1024 * 1024 * 1024,
  uploadTimeoutMs: 600_000,
  keepAliveTimeoutMs: 75_000,
  sinkBufferBytesMax: 4 * 1024 * 1024,
  sinkStallMsMax: 60_000,
};

export interface HttpEdgeOptions extends Partial<HttpEdgeLimits> {
  readonly api: FrontendApi;
  readonly host: string;
  /** 0 takes any free port; the url tells which. */
  readonly port: number;
  /** SHA-256 of each key in lower-case hex, with the name of its owner; null: no keys, all may ask. */
  readonly apiKeys: ReadonlyMap<string, string> | null;
  /** Text of GET /metrics, in Prometheus' format. */
  readonly metricsText: () => Promise<string>;
  readonly logger: Logger;
  /** Makes an id that no other request of the fleet has. */
  readonly requestId: () => string;
  /**
   * Take a well-formed `x-request-id` of the caller instead, for a gateway in front that makes them
   * unique. Off by default: from clients, equal ids would mix up two requests.
   */
  readonly trustRequestIdHeader?: boolean;
}
