import type { ServerResponse } from "node:http";
import type { EngineModel } from "@baton/engine-model";
import type { Outcome } from "@baton/kit";
import {
  detokenizeBody,
  type EventSource,
  engineVersion,
  kvEventSourcesBody,
  modelsBody,
  tokenizeBody,
} from "./admin-routes.ts";
import { type ApiError, badRequest, errorBody, scaleOutDisabled } from "./api-error.ts";
import { type Faults, setFaults } from "./faults.ts";
import type { GenerationDesk } from "./generation-desk.ts";
import { send, sendJson } from "./http-answer.ts";
import { constant, type HttpApi, type JsonBody, type RouteHandler } from "./http-api.ts";
import type { Ledger } from "./ledger.ts";
import { metricsPage } from "./metrics-page.ts";
import type { EngineSimOptions } from "./options.ts";
import type { RequestMetrics } from "./request-metrics.ts";

export interface SimRoutesInput {
  readonly options: EngineSimOptions;
  readonly model: EngineModel;
  readonly desk: GenerationDesk;
  readonly ledger: Ledger;
  readonly metrics: RequestMetrics;
  readonly faults: Faults;
  readonly events: EventSource | null;
}

/** vLLM's routes, and those under /sim by which a test looks inside and breaks things. */
export function simRoutes(input: SimRoutesInput): HttpApi {
  const { options, desk } = input;
  const startedWallS = Date.now() / 1000;
  const refused = constant(scaleOutDisabled.status, errorBody(scaleOutDisabled));
  const alive = constant(200, null);
  return {
    get: {
      "/health": alive,
      "/ping": alive,
      "/version": constant(200, JSON.stringify({ version: engineVersion })),
      "/v1/models": constant(200, modelsBody(options, Math.floor(startedWallS))),
      "/kv_event_sources": constant(200, kvEventSourcesBody(input.events)),
      "/load": (_, response) => sendJson(response, 200, `{"server_load":${desk.size}}`),
      "/metrics": metricsRoute(input, startedWallS),
      "/sim/ledger": (_, response) => sendJson(response, 200, JSON.stringify(input.ledger.view())),
      "/sim/ledger/computed-blocks": (_, response) =>
        send(response, 200, "application/octet-stream", input.ledger.computedBlocks()),
      "/sim/faults": (_, response) => sendJson(response, 200, JSON.stringify(input.faults)),
    },
    post: {
      "/v1/completions": (...call) => desk.accept("completions", ...call),
      "/v1/chat/completions": (...call) => desk.accept("chat", ...call),
      "/v1/completions/render": refused,
      "/v1/chat/completions/render": refused,
      "/inference/v1/generate": refused,
      "/ping": alive,
      "/tokenize": (_, response, body) =>
        answer(response, tokenizeBody(body, options.contextTokensMax)),
      "/detokenize": (_, response, body) => answer(response, detokenizeBody(body)),
      "/reset_prefix_cache": resetRoute(input.model),
      "/sim/faults": faultsRoute(input),
    },
  };
}

function answer(response: ServerResponse, result: Outcome<string, ApiError>): void {
  if (result.ok) sendJson(response, 200, result.value);
  else sendJson(response, result.error.status, errorBody(result.error));
}

function metricsRoute(input: SimRoutesInput, startedWallS: number): RouteHandler {
  const { model, metrics, options } = input;
  return (_, response) => {
    const page = metricsPage({ model, metrics, modelName: options.model, startedWallS });
    send(response, 200, "text/plain; version=1.0.0; charset=utf-8", Buffer.from(page));
  };
}

/** Refused while a block is in use; the event goes out with the next step. */
function resetRoute(model: EngineModel): RouteHandler {
  return (_, response) => {
    const isIdle = model.cache.usedBlocks === 0;
    if (isIdle) model.cache.clear(true);
    sendJson(response, 200, `{"success":${isIdle}}`);
  };
}

/** Sets what the body names; `clearCacheSilently` is done once and not kept. */
function faultsRoute({ model, faults }: SimRoutesInput): RouteHandler {
  return (_, response, body: JsonBody) => {
    const { clearCacheSilently, ...lasting } = body;
    const set = setFaults(faults, lasting);
    if (!set.ok) {
      const error = badRequest(set.error);
      return sendJson(response, error.status, errorBody(error));
    }
    if (clearCacheSilently === true) model.cache.clear(false);
    model.slowdown = faults.slowdown;
    sendJson(response, 200, JSON.stringify(faults));
  };
}
