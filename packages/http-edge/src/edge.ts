import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { type BatonError, batonError } from "@baton/domain";
import { InvariantError } from "@baton/kit";
import { errorBody } from "@baton/openai-api";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { ApiKeys } from "./api-keys.ts";
import type { BodyReader } from "./body-reader.ts";
import type { HttpEdgeLimits, HttpEdgeOptions } from "./options.ts";
import type { RunningAnswers } from "./running-answers.ts";

/** What the parts of one server share. */
export interface Edge {
  readonly options: HttpEdgeOptions;
  readonly limits: HttpEdgeLimits;
  readonly apiKeys: ApiKeys | null;
  readonly bodies: BodyReader;
  readonly running: RunningAnswers;
  isDraining: boolean;
}

export function sendError(reply: FastifyReply, error: BatonError): void {
  const { status, headers, body } = errorBody(error);
  void reply.code(status).headers(headers).send(JSON.stringify(body));
}

/**
 * Fastify refused the request, or a handler threw. A broken invariant ends the process, as everywhere;
 * the rest ends one request.
 */
export function answerUnexpected(
  edge: Edge,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  if (error instanceof InvariantError) {
    queueMicrotask(() => {
      throw error;
    });
    return;
  }
  const status = (error as { readonly statusCode?: unknown }).statusCode;
  if (typeof status === "number" && status < 500 && error instanceof Error) {
    sendError(reply, batonError("BATON_BAD_REQUEST", error.message));
    return;
  }
  const stack = error instanceof Error ? error.stack : String(error);
  edge.options.logger.error({ requestId: request.id, stack }, "request failed unexpectedly");
  sendError(reply, batonError("BATON_INTERNAL", "The request failed unexpectedly."));
}

/** Bytes that are no HTTP request, or one that did not come in time: there is no reply object yet. */
export function answerProtocolError(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const status =
    error.code === "HPE_HEADER_OVERFLOW"
      ? 431
      : error.code === "ERR_HTTP_REQUEST_TIMEOUT"
        ? 408
        : 400;
  const message = `This is not a request that can be read: ${error.message}.`;
  const body = JSON.stringify(errorBody(batonError("BATON_BAD_REQUEST", message)).body);
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-type: application/json\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}
