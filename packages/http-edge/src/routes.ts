import { type BatonError, batonError } from "@baton/domain";
import type { GetAnswer, Route } from "@baton/ports";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type Edge, sendError } from "./edge.ts";
import { HttpSink } from "./http-sink.ts";

const postRoutes: Readonly<Record<string, Route>> = {
  "/v1/chat/completions": "chat",
  "/v1/completions": "completions",
};

/** Probes come without a key. */
const openPaths: ReadonlySet<string> = new Set(["/health", "/ready"]);

const decisionsLimitDefault = 20;
const decisionsLimitMax = 1_000;

export function addRoutes(app: FastifyInstance, edge: Edge): void {
  const { api, metricsText } = edge.options;
  const tenants = new WeakMap<FastifyRequest, string>();
  app.addHook("onRequest", (request, reply, next) => {
    edge.running.start(reply.raw);
    void reply.header("x-request-id", request.id);
    if (edge.isDraining) void reply.header("connection", "close");
    if (edge.apiKeys !== null && !openPaths.has(pathOf(request))) {
      const owner = edge.apiKeys.ownerOf(request.headers.authorization);
      if (owner === null) {
        sendError(reply, unauthorized(request));
        return;
      }
      tenants.set(request, owner);
    }
    next();
  });
  for (const [path, route] of Object.entries(postRoutes)) {
    app.post(path, (request, reply) => {
      generate(edge, request, reply, { route, tenant: tenants.get(request) ?? null });
    });
  }
  const gets: Readonly<Record<string, () => GetAnswer>> = {
    "/v1/models": () => api.models(),
    "/health": () => api.health(),
    "/ready": () => api.ready(),
  };
  for (const [path, answer] of Object.entries(gets)) {
    app.get(path, (_request, reply) => sendAnswer(reply, answer()));
  }
  app.get("/metrics", async (_request, reply) => {
    const text = await metricsText();
    return reply.header("content-type", "text/plain; version=0.0.4; charset=utf-8").send(text);
  });
  app.get("/debug/decisions", (request, reply) => sendDecisions(edge, request, reply));
  app.setNotFoundHandler((request, reply) => refuseRoute(app, request, reply));
}

/** Takes the connection from Fastify, reads the body, and leaves the answer to the frontend. */
function generate(
  edge: Edge,
  request: FastifyRequest,
  reply: FastifyReply,
  target: { readonly route: Route; readonly tenant: string | null },
): void {
  reply.hijack();
  const { api, logger } = edge.options;
  const sink = new HttpSink(reply.raw, {
    requestId: request.id,
    limits: edge.limits,
    logger,
    isDraining: () => edge.isDraining,
    onOver: (listener) => edge.running.onOver(reply.raw, listener),
  });
  if (edge.isDraining) {
    sink.error(batonError("BATON_DRAINING", "This replica is closing."));
    return;
  }
  const share = edge.bodies.open();
  edge.running.onOver(reply.raw, () => share.release());
  void share.read(request.raw).then((body) => {
    if (body === null) return;
    if (body.ok) {
      const headers = request.headers as Readonly<Record<string, string | undefined>>;
      api.generate({ requestId: request.id, headers, body: body.value, ...target }, sink);
    } else sink.error(body.error);
  });
}

function sendAnswer(reply: FastifyReply, { status, body }: GetAnswer): void {
  void reply.code(status).header("content-type", "application/json").send(JSON.stringify(body));
}

async function sendDecisions(
  edge: Edge,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const query = request.query as Readonly<Record<string, string | string[] | undefined>>;
  const { request_id: requestId = null, limit: limitText = String(decisionsLimitDefault) } = query;
  const limit = Number(limitText);
  const isLimit = Number.isInteger(limit) && limit >= 1 && limit <= decisionsLimitMax;
  if (Array.isArray(requestId) || !isLimit) {
    const param = isLimit ? "request_id" : "limit";
    const message = `'${param}' is given once; 'limit' is from 1 to ${decisionsLimitMax}.`;
    sendError(reply, batonError("BATON_BAD_REQUEST", message, { param }));
  } else sendAnswer(reply, await edge.options.api.decisions({ requestId, limit }));
  return reply;
}

function refuseRoute(app: FastifyInstance, request: FastifyRequest, reply: FastifyReply): void {
  const path = pathOf(request);
  const allowed = (["GET", "POST"] as const).filter((method) =>
    app.hasRoute({ method, url: path }),
  );
  const allow = allowed.join(", ");
  if (allow !== "") void reply.header("allow", allow);
  const error =
    allow === ""
      ? batonError("BATON_UNKNOWN_ROUTE", `There is no route ${path}.`)
      : batonError("BATON_METHOD_NOT_ALLOWED", `${path} takes ${allow}, not ${request.method}.`);
  sendError(reply, error);
}

function unauthorized(request: FastifyRequest): BatonError {
  const isGiven = request.headers.authorization !== undefined;
  const message = isGiven
    ? "The API key is not known."
    : "Send an API key: Authorization: Bearer KEY.";
  return batonError("BATON_UNAUTHORIZED", message);
}

function pathOf(request: FastifyRequest): string {
  return request.url.split("?", 1)[0]!;
}
