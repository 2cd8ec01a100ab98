export interface CompletionRequest {
  readonly body: Buffer;
  readonly outputTokens: number;
  /** The one right answer; null: any text is right. */
  readonly expectedText: string | null;
}

export interface CompletionFailure {
  /** E.g. `HTTP_503`, a code of the answer's error object, `TIMEOUT`, `TOKEN_COUNT_WRONG`. */
  readonly code: string;
  readonly message: string;
}

interface Usage {
  readonly completion_tokens: number;
}

/** What one event stream said so far; per event a few comparisons of bytes, no JSON. */
export class StreamedAnswer {
  /** Set before each chunk: all its events came at that time. */
  nowMs = 0;
  hasBegun = false;
  firstMs: number | null = null;
  streamFailure: CompletionFailure | null = null;
  readonly gapsMs: number[] = [];
  readonly #request: CompletionRequest;
  #lastMs = 0;
  #events = 0;
  #isDone = false;
  #usage: Usage | null = null;
  #text = "";

  constructor(request: CompletionRequest) {
    this.#request = request;
  }

  onPayload(payload: Buffer): void {
    if (payload.length === 6 && payload.toString("latin1") === "[DONE]") {
      this.#isDone = true;
      return;
    }
    switch (kindOf(payload)) {
      case "token":
        this.#onToken(payload);
        return;
      case "usage":
        this.#usage = usageOf(payload);
        return;
      case "error":
        this.streamFailure ??= errorOf("STREAM_ERROR", payload.toString());
    }
  }

  #onToken(payload: Buffer): void {
    if (this.firstMs === null) this.firstMs = this.nowMs;
    else this.gapsMs.push(this.nowMs - this.#lastMs);
    this.#lastMs = this.nowMs;
    this.#events++;
    if (this.#request.expectedText !== null) this.#text += textOf(payload);
  }

  /** Once the body has ended. */
  verdict(): CompletionFailure | null {
    const { outputTokens, expectedText } = this.#request;
    if (!this.#isDone) {
      const message = `the stream ended after ${this.#events} events, without [DONE]`;
      return { code: "STREAM_INCOMPLETE", message };
    }
    const tokens = this.#usage?.completion_tokens ?? this.#events;
    if (tokens !== outputTokens) {
      return { code: "TOKEN_COUNT_WRONG", message: `${tokens} tokens, ${outputTokens} asked for` };
    }
    if (expectedText === null || expectedText === this.#text) return null;
    return { code: "TEXT_WRONG", message: firstDifference(this.#text, expectedText) };
  }
}

const choicesOpen = '"choices":[';

/** By the bytes that engines write; JSON with other spacing is parsed. */
function kindOf(payload: Buffer): "token" | "usage" | "error" {
  const at = payload.indexOf(choicesOpen);
  if (at >= 0) return payload[at + choicesOpen.length] === 0x5d ? "usage" : "token";
  const choices = parse(payload.toString())?.choices;
  if (!Array.isArray(choices)) return "error";
  return choices.length === 0 ? "usage" : "token";
}

function usageOf(payload: Buffer): Usage | null {
  const usage = parse(payload.toString())?.usage as Partial<Usage> | null | undefined;
  return typeof usage?.completion_tokens === "number" ? (usage as Usage) : null;
}

function textOf(payload: Buffer): string {
  const choices = parse(payload.toString())?.choices as { text?: unknown }[] | undefined;
  const text = choices?.[0]?.text;
  return typeof text === "string" ? text : "";
}

/** An OpenAI-style error object's own code and message, as far as it has them. */
export function errorOf(code: string, text: string): CompletionFailure {
  const error = parse(text)?.error as { code?: unknown; message?: unknown } | undefined;
  const message = typeof error?.message === "string" ? error.message : text.slice(0, 200);
  return { code: typeof error?.code === "string" ? error.code : code, message };
}

function parse(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" ? (value as Record<string, unknown> | null) : null;
  } catch {
    // Not JSON has no fields, which is what the callers ask for.
    return null;
  }
}

function firstDifference(text: string, expected: string): string {
  let at = 0;
  while (at < text.length && text[at] === expected[at]) at++;
  const from = Math.max(0, at - 10);
  const [got, want] = [text, expected].map((side) => JSON.stringify(side.slice(from, at + 20)));
  return `the answer differs from character ${at}: ${got} instead of ${want}`;
}
