import { type BatonError, batonError, type ErrorCode } from "@baton/domain";
import type { EngineCall } from "@baton/ports";
import { errors } from "undici";

/** How far an exchange came. */
export interface ExchangeFacts {
  /** A connection was there and the request began to go out. */
  isStarted: boolean;
  /** The last byte of the request is with the socket. */
  isSent: boolean;
  /** The first byte of an answer came. */
  isAnswered: boolean;
  hasHead: boolean;
}

const timeoutCodes = new Set(["UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT"]);
const closedCodes = new Set(["UND_ERR_DESTROYED", "UND_ERR_CLOSED"]);
const lossCodes = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);

/** The other side closed or reset the connection. */
export function isConnectionLoss(error: Error): boolean {
  return lossCodes.has(codeOf(error));
}

/** Names the worker, the URL and the cause; never a header. */
export function toBatonError(call: EngineCall, facts: ExchangeFacts, error: Error): BatonError {
  const code = codeOf(error);
  const where = `worker ${call.workerId} at ${call.url}`;
  const cause = code === "" ? error.message : `${code}: ${error.message}`;
  return batonError(catalogueCode(facts, error), `${where}: ${phrase(call, facts, error)}`, {
    cause,
  });
}

function catalogueCode(facts: ExchangeFacts, error: Error): ErrorCode {
  const code = codeOf(error);
  if (closedCodes.has(code)) return "BATON_DRAINING";
  if (code === "UND_ERR_INVALID_ARG") return "BATON_BAD_REQUEST";
  if (!facts.isStarted) return "BATON_ENGINE_UNREACHABLE";
  if (timeoutCodes.has(code)) return "BATON_ENGINE_TIMEOUT";
  if (isGarbage(error)) return "BATON_ENGINE_GARBAGE";
  return facts.hasHead ? "BATON_STREAM_BROKEN" : "BATON_ENGINE_UNREACHABLE";
}

function phrase(call: EngineCall, facts: ExchangeFacts, error: Error): string {
  const code = codeOf(error);
  if (closedCodes.has(code)) return "the engine client is closing";
  if (code === "UND_ERR_INVALID_ARG") return `${call.method} ${call.path} cannot be sent as HTTP`;
  if (!facts.isStarted) return "no connection";
  if (code === "UND_ERR_HEADERS_TIMEOUT") return `no answer within ${call.headersTimeoutMs} ms`;
  if (code === "UND_ERR_BODY_TIMEOUT") return `silent for ${call.bodyTimeoutMs} ms in its answer`;
  if (isGarbage(error)) return "the answer is not HTTP/1.1";
  return facts.hasHead
    ? "the connection closed within the answer"
    : "the connection closed before an answer";
}

/** Bytes that are not HTTP. The parser's error without a rest of input is an end too early. */
function isGarbage(error: Error): boolean {
  if (error instanceof errors.HTTPParserError) return !("data" in error) || error.data !== "";
  return codeOf(error) === "UND_ERR_HEADERS_OVERFLOW";
}

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : "";
}
