/** An error answer as vLLM 0.32 sends it. */
export interface ApiError {
  readonly status: number;
  readonly message: string;
  readonly type: string;
  readonly param: string | null;
}

export function errorBody({ status, message, type, param }: ApiError): string {
  return JSON.stringify({ error: { message, type, param, code: status } });
}

/** A value that the engine refuses; `value` is quoted in the message when given. */
export function badValue(message: string, param: string, value?: number): ApiError {
  const suffix =
    value === undefined ? `(parameter=${param})` : `(parameter=${param}, value=${value})`;
  return { status: 400, message: `${message} ${suffix}`, type: "BadRequestError", param };
}

export function badRequest(message: string): ApiError {
  return { status: 400, message, type: "BadRequestError", param: null };
}

/** What pydantic finds before the engine looks at a request. */
export function validationError(detail: string, param: string | null = null): ApiError {
  const message = `1 validation error:\n  ${detail}`;
  return { status: 400, message, type: "Bad Request", param };
}

export function fieldError(kind: string, location: string, problem: string): ApiError {
  return validationError(
    `{'type': '${kind}', 'loc': '${location}', 'msg': '${problem}'}`,
    location,
  );
}

export function unknownModel(model: string, served: string): ApiError {
  const message = `The model \`${model}\` does not exist. Valid aliases: ${served}.`;
  return { status: 404, message, type: "NotFoundError", param: "model" };
}

export const internalError: ApiError = {
  status: 500,
  message: "Internal server error",
  type: "InternalServerError",
  param: null,
};

export const engineDeadError: ApiError = {
  status: 500,
  message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
  type: "InternalServerError",
  param: null,
};

export const scaleOutDisabled: ApiError = {
  status: 403,
  message:
    "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
  type: "PermissionDeniedError",
  param: null,
};

export const notFoundBody = '{"detail":"Not Found"}';

/** Bad JSON: the position as V8 names it, the reason in Python's words. */
export function jsonError(cause: string): ApiError {
  const at = /position (\d+)/.exec(cause)?.[1] ?? "0";
  const reason = /property name/.test(cause)
    ? "Expecting property name enclosed in double quotes"
    : "Expecting value";
  const detail = `{'type': 'json_invalid', 'loc': 'body.${at}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': '${reason}'}}`;
  return validationError(detail, `body.${at}`);
}
