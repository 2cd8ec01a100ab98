export type ErrorSource = "client" | "engine" | "bus" | "self";

interface ErrorEntry {
  readonly source: ErrorSource;
  /** HTTP status when it ends a client's request; null for errors that only end a process. */
  readonly status: number | null;
  /** Whether the same request may succeed later without a change. */
  readonly retryable: boolean;
  readonly meaning: string;
  readonly nextStep: string;
}

function entry(
  source: ErrorSource,
  status: number | null,
  retryable: boolean,
  meaning: string,
  nextStep: string,
): ErrorEntry {
  return { source, status, retryable, meaning, nextStep };
}

/** Every operating error of Baton. docs/errors.md is generated from it. */
export const errorCatalogue = {
  BATON_BAD_JSON: entry("client", 400, false, "The body is not JSON.", "Send a JSON object."),
  BATON_BAD_REQUEST: entry(
    "client",
    400,
    false,
    "A field is missing, of the wrong type or out of range.",
    "Change the field that the message names.",
  ),
  BATON_BODY_TOO_LARGE: entry(
    "client",
    413,
    false,
    "The body is over the limit.",
    "Send less, or raise http.bodyLimitBytes.",
  ),
  BATON_UNAUTHORIZED: entry(
    "client",
    401,
    false,
    "No API key, or an unknown one.",
    "Send `Authorization: Bearer KEY` with a key of the keys file.",
  ),
  BATON_UNKNOWN_MODEL: entry(
    "client",
    404,
    false,
    "No pool serves this model name.",
    "Use a name that GET /v1/models lists.",
  ),
  BATON_UNKNOWN_ROUTE: entry(
    "client",
    404,
    false,
    "There is no such route.",
    "See docs/api.md for the routes.",
  ),
  BATON_METHOD_NOT_ALLOWED: entry(
    "client",
    405,
    false,
    "The route exists, with another method.",
    "Use a method that the Allow header lists.",
  ),
  BATON_CLIENT_CLOSED: entry(
    "client",
    499,
    true,
    "The client closed the connection before the answer ended.",
    "Nothing to do on the server.",
  ),
  BATON_INTERNAL: entry(
    "self",
    500,
    false,
    "Baton failed in a way that it has no name for.",
    "Report it with the log line of this request.",
  ),
  BATON_SATURATED: entry(
    "self",
    429,
    true,
    "Capacity exists and is taken; the queue is full or the wait was too long.",
    "Retry after the seconds in Retry-After, or add workers.",
  ),
  BATON_NO_PREFILL_WORKER: entry(
    "self",
    503,
    true,
    "No prefill worker of the model is up.",
    "Look at /debug/workers of the prefill-scheduler for the reasons.",
  ),
  BATON_NO_DECODE_WORKER: entry(
    "self",
    503,
    true,
    "No decode worker of the model is up and has room.",
    "Look at /debug/workers of the decode-scheduler for the reasons.",
  ),
  BATON_NO_COMPATIBLE_PAIR: entry(
    "self",
    503,
    true,
    "No prefill and decode worker speak the same transfer protocol.",
    "Start both pools with the same connector and engine version.",
  ),
  BATON_MODEL_NOT_READY: entry(
    "self",
    503,
    true,
    "The model is known, and its schedulers are not answering.",
    "Check that both schedulers of the model run and reach the bus.",
  ),
  BATON_DRAINING: entry(
    "self",
    503,
    true,
    "This process is shutting down.",
    "Retry; another replica answers.",
  ),
  BATON_DEADLINE: entry(
    "self",
    504,
    true,
    "The request's deadline passed.",
    "Raise request.deadlineMs or send less.",
  ),
  BATON_ENGINE_REJECTED: entry(
    "engine",
    null,
    false,
    "The engine refused the request; its status and message are passed on.",
    "Change what the engine's message names.",
  ),
  BATON_ENGINE_FAILED: entry(
    "engine",
    502,
    true,
    "The engine answered with a server error.",
    "Look at the log of the engine that the message names.",
  ),
  BATON_ENGINE_UNREACHABLE: entry(
    "engine",
    502,
    true,
    "The connection to the engine failed.",
    "Check that the engine runs at the URL that the message names.",
  ),
  BATON_ENGINE_GARBAGE: entry(
    "engine",
    502,
    true,
    "The engine's answer is not what its contract says.",
    "Check engine kind and version; baton doctor names the difference.",
  ),
  BATON_ENGINE_TIMEOUT: entry(
    "engine",
    504,
    true,
    "The engine did not answer within the configured time.",
    "Raise engine.headersTimeoutMs, or look at the engine's load.",
  ),
  BATON_STREAM_BROKEN: entry(
    "engine",
    502,
    true,
    "The engine's stream ended before its last event.",
    "Look at the log of the engine that the message names.",
  ),
  BATON_HANDLE_REFUSED: entry(
    "self",
    502,
    true,
    "A KV handle could not be used: expired, incomplete, or already presented.",
    "None; the prompt is prefilled again.",
  ),
  BATON_BUS_NO_RESPONDER: entry(
    "bus",
    503,
    true,
    "Nobody serves this subject.",
    "Start the scheduler that serves the subject.",
  ),
  BATON_BUS_DEADLINE: entry(
    "bus",
    503,
    true,
    "No answer over the bus in time.",
    "Check the load and the logs of the service asked.",
  ),
  BATON_BUS_PAYLOAD_TOO_LARGE: entry(
    "bus",
    413,
    false,
    "A message is over the bus's max_payload.",
    "Raise max_payload of nats-server, or send a shorter prompt.",
  ),
  BATON_BUS_HANDLER_FAILED: entry(
    "bus",
    500,
    true,
    "The service asked failed while it handled the message.",
    "Look at the log of the service that the message names.",
  ),
  BATON_BUS_CLOSED: entry(
    "bus",
    503,
    true,
    "The bus is closed or draining.",
    "None while shutting down; else check the connection to NATS.",
  ),
  BATON_BUS_UNREACHABLE: entry(
    "bus",
    null,
    true,
    "NATS cannot be reached at start.",
    "Check bus.url and that nats-server runs, or use npm start without --nats, which needs none.",
  ),
  BATON_BUS_UNAUTHORIZED: entry(
    "bus",
    null,
    false,
    "NATS refuses the credentials.",
    "Check the user and password, token, seed file or credentials file of the bus.",
  ),
  BATON_BUS_FORBIDDEN: entry(
    "bus",
    500,
    false,
    "NATS does not allow this user to use the subject.",
    "Give the user the permissions listed in docs/operations.md.",
  ),
  BATON_PROTOCOL_MAJOR: entry(
    "bus",
    500,
    false,
    "A message has a major version that this build does not speak.",
    "Upgrade the older of the two services.",
  ),
  BATON_PROTOCOL_MALFORMED: entry(
    "bus",
    500,
    false,
    "A message cannot be read.",
    "Check that only Baton services publish on Baton subjects.",
  ),
  BATON_CONFIG_INVALID: entry(
    "self",
    null,
    false,
    "The configuration has problems; all are listed.",
    "Mend each listed key; exit code 64.",
  ),
  BATON_TRACE_INVALID: entry(
    "client",
    null,
    false,
    "A trace file cannot be read or has a broken row.",
    "Mend the file and line that the message names.",
  ),
  BATON_PORT_IN_USE: entry(
    "self",
    null,
    false,
    "The port to listen on is taken.",
    "Choose another port, or stop the process that has it.",
  ),
  BATON_TOKENIZER_FAILED: entry(
    "self",
    502,
    true,
    "The prompt could not be tokenised.",
    "Check tokenizer.mode and the tokenizer folder or the engine's /tokenize.",
  ),
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof errorCatalogue;

/** An operating error as a value; everything but the message follows from the code. */
export interface BatonError {
  readonly code: ErrorCode;
  /** What and where, for a person. No secrets. */
  readonly message: string;
  /** Field of the request, when one is at fault. */
  readonly param?: string;
  /** What lies behind it: another error's text. */
  readonly cause?: string;
  /** Seconds for Retry-After. */
  readonly retryAfterS?: number;
}

export function batonError(
  code: ErrorCode,
  message: string,
  more: Omit<BatonError, "code" | "message"> = {},
): BatonError {
  return { code, message, ...more };
}
