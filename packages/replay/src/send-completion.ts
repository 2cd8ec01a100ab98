import {
  type Agent,
  type ClientRequest,
  request as httpRequest,
  type IncomingMessage,
} from "node:http";
import { request as httpsRequest } from "node:https";
import { SseScanner } from "./sse-scanner.ts";
import {
  type CompletionFailure,
  type CompletionRequest,
  errorOf,
  StreamedAnswer,
} from "./streamed-answer.ts";

/** Where and how completions are asked for. */
export interface CompletionTarget {
  readonly url: URL;
  readonly agent: Agent;
  readonly apiKey: string | null;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Wall milliseconds from the moment of sending. */
export interface CompletionAnswer {
  readonly failure: CompletionFailure | null;
  readonly ttftMs: number | null;
  /** Of each token event after the first, the time since the one before. */
  readonly gapsMs: readonly number[];
  readonly e2eMs: number;
}

const errorBodyBytesMax = 65_536;

/**
 * Sends one streaming completion and times its answer. Never rejects. Well ended means: status 200,
 * `[DONE]` seen, as many tokens as asked for (by the usage event; without one, by events), and the
 * expected text if there is one. A request that a kept connection dropped before any answer is sent
 * once more, as HTTP clients do; the time runs on.
 */
export function sendCompletion(
  target: CompletionTarget,
  request: CompletionRequest,
): Promise<CompletionAnswer> {
  return new Promise((resolve) => {
    const answer = new StreamedAnswer(request);
    const sentMs = performance.now();
    let current: ClientRequest | null = null;
    let isOver = false;
    const end = (failure: CompletionFailure | null) => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      target.signal.removeEventListener("abort", onAbort);
      if (failure !== null) current?.destroy();
      const { firstMs, gapsMs } = answer;
      const ttftMs = firstMs === null ? null : firstMs - sentMs;
      resolve({ failure, ttftMs, gapsMs, e2eMs: performance.now() - sentMs });
    };
    const onAbort = () => end({ code: "ABORTED", message: "the replay was stopped" });
    const timer = setTimeout(() => {
      end({ code: "TIMEOUT", message: `no end within ${target.timeoutMs} ms` });
    }, target.timeoutMs);
    const send = (isRetry: boolean) => {
      const sending = open(target, request.body);
      current = sending;
      sending.on("response", (response) => receive(response, answer, end));
      sending.on("error", (error: NodeJS.ErrnoException) => {
        const isStale = sending.reusedSocket && error.code === "ECONNRESET" && !isOver;
        if (isStale && !isRetry && !answer.hasBegun) send(true);
        else end({ code: `CONNECTION_${error.code ?? "FAILED"}`, message: error.message });
      });
      sending.end(request.body);
    };
    target.signal.addEventListener("abort", onAbort);
    if (target.signal.aborted) onAbort();
    else send(false);
  });
}

function open(target: CompletionTarget, body: Buffer): ClientRequest {
  const send = target.url.protocol === "https:" ? httpsRequest : httpRequest;
  return send(target.url, {
    agent: target.agent,
    method: "POST",
    headers: {
      "content-type": "application/json",
      "content-length": body.length,
      ...(target.apiKey === null ? {} : { authorization: `Bearer ${target.apiKey}` }),
    },
  });
}

function receive(
  response: IncomingMessage,
  answer: StreamedAnswer,
  end: (failure: CompletionFailure | null) => void,
): void {
  answer.hasBegun = true;
  response.on("error", (error) => end({ code: "STREAM_BROKEN", message: error.message }));
  if (response.statusCode === 200) {
    const scanner = new SseScanner((payload) => answer.onPayload(payload));
    response.on("data", (chunk: Buffer) => {
      answer.nowMs = performance.now();
      scanner.push(chunk);
      if (answer.streamFailure !== null) end(answer.streamFailure);
    });
    response.on("end", () => end(answer.verdict()));
    return;
  }
  const chunks: Buffer[] = [];
  let lengthBytes = 0;
  response.on("data", (chunk: Buffer) => {
    lengthBytes += chunk.length;
    if (lengthBytes <= errorBodyBytesMax) chunks.push(chunk);
  });
  response.on("end", () => {
    end(errorOf(`HTTP_${response.statusCode}`, Buffer.concat(chunks).toString()));
  });
}
