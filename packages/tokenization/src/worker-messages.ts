import type { Route } from "@baton/ports";

export interface WorkerData {
  readonly folder: string;
}

export interface TokenizeJob {
  readonly route: Route;
  /** Over a buffer of its own, which moves to the worker thread. */
  readonly body: Uint8Array;
}

export type WorkerMessage =
  | { readonly kind: "ready" }
  | { readonly kind: "unusable"; readonly reason: string }
  | { readonly kind: "tokens"; readonly tokenIds: Uint32Array }
  | { readonly kind: "failed"; readonly reason: string };
