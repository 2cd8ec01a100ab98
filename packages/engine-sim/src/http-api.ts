import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { fail, type Outcome, ok } from "@baton/kit";
import { type ApiError, errorBody, jsonError, notFoundBody, validationError } from "./api-error.ts";
import { readBody, send, sendJson } from "./http-answer.ts";

export type JsonBody = Readonly<Record<string, unknown>>;

/** `body` is null for GET. The handler answers on `response`, now or later. */
export type RouteHandler = (
  request: IncomingMessage,
  response: ServerResponse,
  body: JsonBody,
) => void;

export interface HttpApi {
  readonly get: Readonly<Record<string, RouteHandler>>;
  readonly post: Readonly<Record<string, RouteHandler>>;
}

/** uvicorn closes an idle connection after this long, without announcing it. */
const keepAliveMs = 5000;

export async function listenHttp(
  address: { readonly host: string; readonly port: number },
  api: HttpApi,
): Promise<Server> {
  const server = createServer({ keepAliveTimeout: keepAliveMs }, (request, response) => {
    void route(api, request, response);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(address.port, address.host, resolve);
  });
  return server;
}

export function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

async function route(
  api: HttpApi,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = (request.url ?? "/").split("?", 1)[0]!;
  const isPost = request.method === "POST";
  const handler = (isPost ? api.post : api.get)[path];
  if (handler === undefined) {
    request.resume();
    const isOther = (isPost ? api.get : api.post)[path] !== undefined;
    const body = isOther ? '{"detail":"Method Not Allowed"}' : notFoundBody;
    return sendJson(response, isOther ? 405 : 404, body);
  }
  if (!isPost) {
    request.resume();
    return handler(request, response, {});
  }
  const bytes = await readBody(request);
  if (bytes === null) return;
  if (bytes.length === 0) return handler(request, response, {});
  const body = parseBody(request, bytes);
  if (!body.ok) return sendJson(response, body.error.status, errorBody(body.error));
  handler(request, response, body.value);
}

function parseBody(request: IncomingMessage, bytes: Buffer): Outcome<JsonBody, ApiError> {
  const mediaType = (request.headers["content-type"] ?? "").split(";", 1)[0]!.trim().toLowerCase();
  if (mediaType !== "application/json") {
    return fail(validationError("Unsupported Media Type: Only 'application/json' is allowed"));
  }
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString());
  } catch (error) {
    return fail(jsonError(error instanceof Error ? error.message : ""));
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return fail(validationError("Input should be a valid dictionary", "body"));
  }
  return ok(value as JsonBody);
}

/** A handler with a constant answer. */
export function constant(status: number, json: string | null): RouteHandler {
  return (_, response) => {
    if (json === null) send(response, status, null, new Uint8Array());
    else sendJson(response, status, json);
  };
}
