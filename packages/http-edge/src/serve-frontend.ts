import type { AddressInfo } from "node:net";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { type FastifyInstance, fastify } from "fastify";
import { createApiKeys } from "./api-keys.ts";
import { BodyReader } from "./body-reader.ts";
import { answerProtocolError, answerUnexpected, type Edge, sendError } from "./edge.ts";
import { type HttpEdgeOptions, httpEdgeDefaults } from "./options.ts";
import { addRoutes } from "./routes.ts";
import { RunningAnswers } from "./running-answers.ts";

export interface FrontendServer {
  /** Scheme, host and port, without a trailing slash. */
  readonly url: string;
  /**
   * Stops listening, answers new requests on open connections with BATON_DRAINING, lets running ones
   * end for up to `graceMs`, then closes every connection. Idempotent.
   */
  close(graceMs: number): Promise<void>;
}

/** From the first byte of a request to the end of its headers. */
const headersTimeoutMs = 60_000;

/** Silence on a connection after which TCP asks whether the client is still there. */
const probeDelayMs = 30_000;

/** More than a closed connection ever takes to say so. */
const cutMs = 1_000;

/**
 * Serves a frontend over HTTP/1.1 with Fastify: routes, keys, limits and errors are here, and what a
 * request means is the frontend's business. Bodies are handed over as bytes. Errors:
 * BATON_PORT_IN_USE, and BATON_CONFIG_INVALID for a host that cannot be listened on.
 */
export async function serveFrontend(
  options: HttpEdgeOptions,
): Promise<Outcome<FrontendServer, BatonError>> {
  const limits = { ...httpEdgeDefaults, ...options };
  const edge: Edge = {
    options,
    limits,
    apiKeys: options.apiKeys === null ? null : createApiKeys(options.apiKeys),
    bodies: new BodyReader(limits),
    running: new RunningAnswers(),
    isDraining: false,
  };
  const app = createApp(edge);
  try {
    await app.listen({ host: options.host, port: options.port });
  } catch (error) {
    await app.close();
    return fail(listenError(error as NodeJS.ErrnoException, options));
  }
  let closing: Promise<void> | null = null;
  return ok({
    url: urlOf(app.server.address() as AddressInfo),
    close: (graceMs) => {
      closing ??= drain(app, edge, graceMs);
      return closing;
    },
  });
}

function createApp(edge: Edge): FastifyInstance {
  const { limits, options } = edge;
  const app = fastify({
    logger: false,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    requestTimeout: limits.uploadTimeoutMs,
    return503OnClosing: false,
    // Fastify never reads a body here; node:http's own limits and ours apply.
    bodyLimit: limits.bodyLimitBytes,
    http: {
      noDelay: true,
      // Finds clients that are gone without a word during a long prefill.
      keepAlive: true,
      keepAliveInitialDelay: probeDelayMs,
      headersTimeout: Math.min(headersTimeoutMs, limits.uploadTimeoutMs),
    },
    requestIdHeader: false,
    genReqId: (request) => requestIdOf(request.headers["x-request-id"], options),
    clientErrorHandler: answerProtocolError,
    frameworkErrors: (error, request, reply) => {
      void reply.header("x-request-id", request.id);
      sendError(reply, batonError("BATON_BAD_REQUEST", error.message));
    },
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null));
  app.setErrorHandler((error, request, reply) => answerUnexpected(edge, error, request, reply));
  addRoutes(app, edge);
  // Each request of a connection listens for its close, and clients may send many ahead.
  app.server.on("connection", (socket) => socket.setMaxListeners(0));
  return app;
}

const requestIdPattern = /^[A-Za-z0-9._:-]{1,128}$/;

function requestIdOf(given: string | string[] | undefined, options: HttpEdgeOptions): string {
  const isTrusted = options.trustRequestIdHeader === true && typeof given === "string";
  return isTrusted && requestIdPattern.test(given) ? given : options.requestId();
}

function listenError(error: NodeJS.ErrnoException, options: HttpEdgeOptions): BatonError {
  const where = `${options.host}:${options.port}`;
  if (error.code === "EADDRINUSE") {
    return batonError("BATON_PORT_IN_USE", `Another process listens on ${where}.`);
  }
  return batonError("BATON_CONFIG_INVALID", `Cannot listen on ${where}: ${error.message}.`);
}

function urlOf({ address, family, port }: AddressInfo): string {
  const isAny = address === "0.0.0.0" || address === "::";
  if (isAny) return `http://127.0.0.1:${port}`;
  return `http://${family === "IPv6" ? `[${address}]` : address}:${port}`;
}

async function drain(app: FastifyInstance, edge: Edge, graceMs: number): Promise<void> {
  edge.isDraining = true;
  const { server } = app;
  const stopped = new Promise<void>((resolve) => server.close(() => resolve()));
  await edge.running.allOver(graceMs);
  server.closeAllConnections();
  // What is cut off now is still told to the frontend before this resolves.
  await Promise.all([stopped, edge.running.allOver(cutMs)]);
  await app.close();
}
