import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type BatonError, batonError, errorCatalogue } from "@baton/domain";
import { fail, InvariantError, invariant, type Outcome, ok } from "@baton/kit";
import type { GetAnswer, Logger } from "@baton/ports";
import { checkListenAddress } from "./listen-address.ts";
import { metricsContentType } from "./metrics.ts";

export interface AdminOptions {
  readonly host: string;
  /** 0 takes a free one; `AdminServer.port` tells which. */
  readonly port: number;
  /** Liveness. Default: 200 as long as the event loop turns. */
  readonly health?: () => GetAnswer;
  /** `readiness(missing)` makes the answer. */
  readonly ready: () => GetAnswer;
  readonly metricsText: () => Promise<string>;
  /** By path, e.g. `/debug/workers`. */
  readonly debug?: Readonly<Record<string, (query: URLSearchParams) => Promise<GetAnswer>>>;
  /** Asked for at /metrics and /debug. The probes stay open: kubelet cannot show a token. */
  readonly bearerToken?: string | null;
  /** Listen beyond loopback without a token. */
  readonly insecure?: boolean;
  readonly logger: Logger;
}

export interface AdminServer {
  readonly host: string;
  readonly port: number;
  /** `http://127.0.0.1:9401` */
  readonly url: string;
  /** Ends at once, open connections too. Idempotent. */
  close(): Promise<void>;
}

const connectionsMax = 128;
const requestMsMax = 10_000;
const idleMsMax = 5_000;

/** The answer of /ready: 200 when nothing is missing, else 503 and what is. */
export function readiness(missing: readonly string[]): GetAnswer {
  const isReady = missing.length === 0;
  return { status: isReady ? 200 : 503, body: { ready: isReady, missing } };
}

/**
 * Serves GET /health, /ready, /metrics and /debug/*. Errors: BATON_CONFIG_INVALID beyond loopback
 * without a token, BATON_PORT_IN_USE.
 */
export async function serveAdmin(options: AdminOptions): Promise<Outcome<AdminServer, BatonError>> {
  const { host, port, bearerToken = null, insecure = false, debug = {} } = options;
  for (const path of Object.keys(debug)) {
    invariant(path.startsWith("/debug/"), `debug path ${path} must begin with /debug/`);
  }
  invariant(bearerToken !== "", "an empty token is no token");
  const address = checkListenAddress({
    host,
    hasKeys: bearerToken !== null,
    insecure,
    keyName: "admin.tokenFile",
    insecureName: "admin.insecure: true",
  });
  if (!address.ok) return address;
  const server = createServer((request, response) => void answer(options, request, response));
  server.maxConnections = connectionsMax;
  server.requestTimeout = requestMsMax;
  server.headersTimeout = requestMsMax;
  server.keepAliveTimeout = idleMsMax;
  const failure = await listen(server, host, port);
  if (failure !== null) return fail(failure);
  server.on("error", (error) => options.logger.error({ error }, "admin server failed"));
  const bound = server.address() as AddressInfo;
  const shownHost = bound.family === "IPv6" ? `[${bound.address}]` : bound.address;
  return ok({
    host: bound.address,
    port: bound.port,
    url: `http://${shownHost}:${bound.port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  });
}

function listen(server: Server, host: string, port: number): Promise<BatonError | null> {
  return new Promise((resolve) => {
    const refused = (error: NodeJS.ErrnoException) => resolve(listenError(error, host, port));
    server.once("error", refused);
    server.listen({ host, port }, () => {
      server.off("error", refused);
      resolve(null);
    });
  });
}

/** What a failed `listen` means; for every server of Baton. */
export function listenError(error: NodeJS.ErrnoException, host: string, port: number): BatonError {
  const where = `${host}:${port}`;
  const cause = error.message;
  if (error.code === "EADDRINUSE") {
    return batonError("BATON_PORT_IN_USE", `${where} is taken by another process.`, { cause });
  }
  const message = `Cannot listen on ${where} (${error.code}).`;
  return batonError("BATON_CONFIG_INVALID", message, { cause });
}

async function answer(
  options: AdminOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  // Bodies mean nothing here; reading them away lets the connection be used again.
  request.resume();
  response.on("error", () => {});
  try {
    await route(options, request, response);
  } catch (error) {
    options.logger.error({ error, path: request.url }, "admin request failed");
    const message = "This request failed; the log says why.";
    sendJson(request, response, 500, { error: { code: "internal", message } });
    // A broken promise of our own code ends the process; see InvariantError.
    if (error instanceof InvariantError) throw error;
  }
}

async function route(
  options: AdminOptions,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { health, ready, metricsText, debug = {}, bearerToken = null } = options;
  // Only path and query are used; a request line may hold anything, so `//` is no host here.
  const target = URL.parse(`http://admin${request.url ?? "/"}`);
  if (target === null)
    return sendError(request, response, batonError("BATON_BAD_REQUEST", "Bad URL."));
  const path = target.pathname;
  const isProbe = path === "/health" || path === "/ready";
  const isKnown = isProbe || path === "/metrics" || path === "/debug" || Object.hasOwn(debug, path);
  if (!isKnown) {
    return sendError(request, response, batonError("BATON_UNKNOWN_ROUTE", `No route ${path}.`));
  }
  if (request.method !== "GET" && request.method !== "HEAD") {
    response.setHeader("allow", "GET, HEAD");
    return sendJson(request, response, 405, { error: { message: "Only GET and HEAD." } });
  }
  if (!isProbe && bearerToken !== null && !hasToken(request, bearerToken)) {
    response.setHeader("www-authenticate", "Bearer");
    const error = batonError("BATON_UNAUTHORIZED", "This path needs the admin token.");
    return sendError(request, response, error);
  }
  if (path === "/metrics") {
    const text = await inTime(metricsText());
    if (text === null) return sendError(request, response, late(path));
    return send(request, response, 200, metricsContentType, text);
  }
  const reply = await inTime(getAnswer(path, target.searchParams, { health, ready, debug }));
  if (reply === null) return sendError(request, response, late(path));
  sendJson(request, response, reply.status, reply.body);
}

function late(path: string): BatonError {
  return batonError("BATON_DEADLINE", `${path} took over ${requestMsMax} ms.`);
}

/** Null when it takes too long. */
async function inTime<T>(answer: Promise<T>): Promise<T | null> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<null>((resolve) => {
    timer = setTimeout(resolve, requestMsMax, null);
  });
  try {
    return await Promise.race([answer, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

async function getAnswer(
  path: string,
  query: URLSearchParams,
  given: Pick<AdminOptions, "ready"> & {
    readonly health: AdminOptions["health"];
    readonly debug: NonNullable<AdminOptions["debug"]>;
  },
): Promise<GetAnswer> {
  if (path === "/health") return given.health?.() ?? { status: 200, body: { alive: true } };
  if (path === "/ready") return given.ready();
  if (path === "/debug") return { status: 200, body: { paths: Object.keys(given.debug).sort() } };
  const handler = given.debug[path];
  invariant(handler !== undefined, `no handler for ${path}`);
  return await handler(query);
}

/** Compares digests, in constant time, so that neither length nor prefix leaks. */
function hasToken(request: IncomingMessage, token: string): boolean {
  const given = /^bearer +(\S+) *$/i.exec(request.headers.authorization ?? "")?.[1] ?? "";
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}

function sendError(request: IncomingMessage, response: ServerResponse, error: BatonError): void {
  const { status, nextStep } = errorCatalogue[error.code];
  const { code, message } = error;
  sendJson(request, response, status ?? 500, { error: { code, message, nextStep } });
}

function sendJson(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  body: unknown,
): void {
  // A 64-bit value is no JSON number; as text it stays exact.
  const text = JSON.stringify(body, (_, value) => (typeof value === "bigint" ? `${value}` : value));
  send(request, response, status, "application/json; charset=utf-8", `${text ?? "null"}\n`);
}

function send(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  contentType: string,
  text: string,
): void {
  if (response.headersSent || response.destroyed) return;
  const bytes = Buffer.from(text);
  response.writeHead(status, {
    "content-type": contentType,
    "content-length": bytes.length,
    "cache-control": "no-store",
  });
  response.end(request.method === "HEAD" ? undefined : bytes);
}
