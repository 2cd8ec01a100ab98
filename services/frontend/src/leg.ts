import type { LegEdit } from "@baton/connectors";
import { type BatonError, batonError, type WorkerAddress } from "@baton/domain";
import {
  forwardHeaders,
  type GenerateRequest,
  spliceMembers,
  strippedBodyFields,
} from "@baton/openai-api";
import type { ClientRequest, EngineCall, Route } from "@baton/ports";

const paths: Readonly<Record<Route, string>> = {
  chat: "/v1/chat/completions",
  completions: "/v1/completions",
};

/** Takes out what clients may not steer, and makes the leg's changes; all else stays byte for byte. */
export function legBody(
  request: ClientRequest,
  parsed: GenerateRequest,
  edit: LegEdit,
): readonly Uint8Array[] {
  const stripped = strippedBodyFields(request.body, parsed.members);
  return spliceMembers(request.body, parsed.members, {
    remove: new Set([...stripped.remove, ...edit.remove]),
    append: [...stripped.append, ...edit.append.map(({ key, json }) => ({ key, value: json }))],
  });
}

/** The attempt is part of the engine's request id, so that late news of one never hits another. */
export function legCall(
  request: ClientRequest,
  attempt: number,
  worker: WorkerAddress,
  body: readonly Uint8Array[],
  timeouts: Pick<EngineCall, "headersTimeoutMs" | "bodyTimeoutMs">,
): EngineCall {
  const headers = forwardHeaders(request.headers);
  headers["x-request-id"] = `${request.requestId}-${attempt}`;
  if (worker.dpRank !== null) headers["x-data-parallel-rank"] = String(worker.dpRank);
  return {
    workerId: worker.workerId,
    url: worker.url,
    method: "POST",
    path: paths[request.route],
    headers,
    body,
    ...timeouts,
  };
}

/** An engine's refusal, kept to be passed on. */
export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/**
 * What a status other than success means: the client's fault (passed on), or the engine's. 429 and 503
 * say "busy", which is no fault of the worker.
 */
export function judgeStatus(
  status: number,
  where: string,
  text: string,
):
  | { readonly kind: "refusal" }
  | { readonly kind: "fault"; readonly error: BatonError; readonly isWorkerFault: boolean } {
  const isBusy = status === 429 || status === 503;
  if (status >= 400 && status < 500 && !isBusy) return { kind: "refusal" };
  const message = `${where} answered ${status}`;
  const error = batonError("BATON_ENGINE_FAILED", message, { cause: text.slice(0, 500) });
  return { kind: "fault", error, isWorkerFault: !isBusy };
}
