import { type BatonError, errorCatalogue } from "@baton/domain";

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: {
    readonly error: {
      readonly message: string;
      readonly type: string;
      readonly param: string | null;
      readonly code: string;
    };
  };
}

/** Wait suggested where the error itself knows none. */
const retryAfterSDefault = 1;

const types: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  429: "rate_limit_error",
};

/**
 * The one place where the catalogue becomes HTTP. OpenAI's clients pick their error class by status
 * and show `message`, `type`, `param` and `code`; `code` is the catalogue's name. `cause` stays inside.
 */
export function errorBody(error: BatonError): ErrorAnswer {
  const status = errorStatus(error);
  const type = types[status] ?? (status < 500 ? "invalid_request_error" : "server_error");
  const { message, param = null, code } = error;
  const isBusy = status === 429 || status === 503;
  const retryAfterS = error.retryAfterS ?? (isBusy ? retryAfterSDefault : null);
  const headers: Record<string, string> = { "content-type": "application/json" };
  if (status === 401) headers["www-authenticate"] = "Bearer";
  if (retryAfterS !== null) headers["retry-after"] = String(Math.max(1, Math.ceil(retryAfterS)));
  return { status, headers, body: { error: { message, type, param, code } } };
}

/**
 * Event that ends a stream which cannot go on: OpenAI's clients throw on it. No `[DONE]` follows.
 * Sent inside an unfinished event it would be glued to that event's data: see `SseScanner.isMidEvent`.
 */
export function sseErrorEvent(error: BatonError): Uint8Array {
  return new TextEncoder().encode(`data: ${JSON.stringify(errorBody(error).body)}\n\n`);
}

function errorStatus(error: BatonError): number {
  // The engine's own answer is normally passed on; without it, a refusal is still the request's fault.
  if (error.code === "BATON_ENGINE_REJECTED") return 400;
  return errorCatalogue[error.code].status ?? 500;
}
