import type { ServerResponse } from "node:http";
import type { Happening } from "@baton/engine-model";
import {
  type AnswerHead,
  type AnswerUsage,
  type ChunkOptions,
  idsJson,
  roleChunk,
  streamEnd,
  tokenChunk,
  usageChunk,
  wholeAnswer,
} from "./answer-text.ts";
import { type ApiError, errorBody, internalError } from "./api-error.ts";
import { Choice, type ChoiceOwner } from "./choice.ts";
import type { GenerationDeps } from "./generation-deps.ts";
import type { GenerationRequest } from "./generation-request.ts";
import { sendJson, startStream } from "./http-answer.ts";
import { exportedKvJson } from "./remote-kv.ts";

/** One HTTP generation request, from acceptance to the last byte. */
export class Generation implements ChoiceOwner {
  readonly #deps: GenerationDeps;
  readonly #request: GenerationRequest;
  readonly #head: AnswerHead;
  readonly #response: ServerResponse;
  readonly #onEnd: (generation: Generation) => void;
  readonly #choices: Choice[] = [];
  readonly #cutAfterTokens: number;
  #unfinished = 0;
  #pending = "";
  #isOver = false;

  constructor(options: {
    readonly deps: GenerationDeps;
    readonly request: GenerationRequest;
    readonly head: AnswerHead;
    readonly response: ServerResponse;
    readonly onEnd: (generation: Generation) => void;
  }) {
    this.#deps = options.deps;
    this.#request = options.request;
    this.#head = options.head;
    this.#response = options.response;
    this.#onEnd = options.onEnd;
    const { faults } = options.deps;
    this.#cutAfterTokens = options.request.isStream ? faults.cutStreamAfterTokens : 0;
    if (this.#cutAfterTokens > 0) faults.cutStreamAfterTokens = 0;
    options.response.on("close", () => this.#cancel());
    // A write may cross the client's close; that is a close, not a fault of this process.
    options.response.on("error", () => this.#cancel());
  }

  start(): void {
    const { prompts, choices, isStream } = this.#request;
    if (isStream) startStream(this.#response);
    prompts.forEach((promptIds, promptIndex) => {
      for (let copy = 0; copy < choices; copy++) {
        this.#choices.push(this.#makeChoice(promptIds, promptIndex, copy));
      }
    });
    this.#unfinished = this.#choices.length;
    for (const choice of this.#choices) this.#submit(choice);
  }

  onToken(choice: Choice, token: Happening & { kind: "token" }): void {
    const { isStream, finishReason, includesUsage } = this.#request;
    if (!isStream) {
      choice.texts.push(token.text);
      return;
    }
    const isFirst = token.index === 0;
    const isLast = token.index === choice.options.tokensMax - 1;
    const options = this.#chunkOptions(choice, isFirst);
    const index = choice.options.index;
    if (isFirst && this.#head.route === "chat") {
      this.#pending += roleChunk(this.#head, index, options);
    }
    this.#pending += tokenChunk(
      this.#head,
      {
        choice: index,
        text: token.text,
        tokenId: token.tokenId,
        finishReason: isLast ? finishReason : null,
      },
      isLast && !includesUsage ? { ...options, hasFingerprint: true } : options,
    );
    if (this.#cutAfterTokens > 0 && token.index + 1 === this.#cutAfterTokens) {
      this.flush();
      this.#response.socket?.destroySoon();
    }
  }

  onFinished(choice: Choice): void {
    choice.record(this.#request.finishReason);
    if (choice.exportedBlocks !== null) this.#deps.ledger.handlesIssued++;
    this.#unfinished--;
    if (this.#unfinished > 0) return;
    this.#over();
    if (!this.#request.isStream) {
      sendJson(this.#response, 200, this.#wholeText());
      return;
    }
    if (this.#request.includesUsage) this.#pending += usageChunk(this.#head, this.#usage());
    this.#pending += streamEnd;
    this.flush();
    this.#response.end();
  }

  /** One write per moment, however many tokens it brought. */
  flush(): void {
    if (this.#pending === "") return;
    this.#response.write(this.#pending, "latin1");
    this.#pending = "";
  }

  /** Ends the request with an error: as a status, or as an event when the stream has begun. */
  fail(error: ApiError): void {
    if (this.#isOver) return;
    this.#over();
    for (const choice of this.#choices) {
      choice.record("error");
      this.#deps.puller.abandon(choice.options.engineRequestId);
      this.#deps.runtime.abort(choice.options.engineRequestId);
    }
    if (!this.#response.headersSent) sendJson(this.#response, error.status, errorBody(error));
    else this.#response.end(`data: ${errorBody(error)}\n\n${streamEnd}`);
  }

  /** The client went away: the engine stops at once, and the prefill engine may free. */
  #cancel(): void {
    if (this.#isOver) return;
    this.#over();
    for (const choice of this.#choices) {
      choice.record("abort");
      this.#deps.puller.abandon(choice.options.engineRequestId);
      this.#deps.runtime.abort(choice.options.engineRequestId);
    }
  }

  #over(): void {
    this.#isOver = true;
    this.#onEnd(this);
  }

  #makeChoice(promptIds: Uint32Array, promptIndex: number, copy: number): Choice {
    const { deps, request, head } = { deps: this.#deps, request: this.#request, head: this.#head };
    const suffix = deps.ids.hex(8);
    const base = head.route === "chat" ? head.id : `${head.id}-${promptIndex}`;
    const { blockSizeTokens } = deps.model.cache;
    return new Choice({
      index: this.#choices.length,
      engineRequestId: `${request.choices > 1 ? `${copy}_` : ""}${base}-${suffix}`,
      promptIds,
      tokensMax: request.tokensMax[promptIndex]!,
      tokensAsked: request.tokensAsked,
      choicesAsked: request.choices,
      remote: deps.faults.ignoreHandles ? null : request.remote,
      owner: this,
      clock: deps.clock,
      metrics: deps.metrics,
      ledger: deps.ledger,
      puller: deps.puller,
      bytesPerBlock: blockSizeTokens * deps.kvBytesPerToken,
      blockSizeTokens,
    });
  }

  #submit(choice: Choice): void {
    const { engineRequestId: id, promptIds, tokensMax, remote } = choice.options;
    if (remote !== null) {
      const fail = (): void => {
        this.#deps.metrics.failedTransfers++;
        this.fail(internalError);
      };
      this.#deps.puller.begin({ requestId: id, remote, fail });
    }
    const isExport = this.#request.exportsKv && remote === null;
    this.#deps.runtime.submit(
      {
        id,
        promptIds,
        tokensMax,
        cacheSalt: this.#request.cacheSalt,
        kind:
          remote !== null ? "decode-with-remote-kv" : isExport ? "prefill-for-remote" : "normal",
      },
      choice,
    );
  }

  #chunkOptions(choice: Choice, isFirst: boolean): ChunkOptions {
    const { returnsTokenIds, continuousUsage } = this.#request;
    const promptTokens = choice.options.promptIds.length;
    return {
      promptIdsJson: isFirst && returnsTokenIds ? idsJson(choice.options.promptIds) : null,
      returnsTokenIds,
      usage: continuousUsage
        ? {
            promptTokens,
            completionTokens: choice.tokenIds.length,
            cachedTokens: null,
            createdCacheTokens: 0,
          }
        : null,
      hasFingerprint: false,
    };
  }

  #wholeText(): string {
    const { finishReason, returnsTokenIds } = this.#request;
    const choices = this.#choices.map(({ texts, tokenIds, options }) => ({
      text: texts.join(""),
      tokenIds,
      promptIds: options.promptIds,
      finishReason,
    }));
    const exported = this.#choices.findLast((choice) => choice.exportedBlocks !== null);
    return wholeAnswer(this.#head, choices, {
      usage: this.#usage(),
      returnsTokenIds,
      kvTransferJson: exported === undefined ? null : this.#handleJson(exported),
    });
  }

  #handleJson(choice: Choice): string {
    return exportedKvJson({
      ...this.#deps.address,
      blockIds: choice.exportedBlocks!,
      requestId: choice.options.engineRequestId,
      promptTokens: choice.options.promptIds.length,
      cachedTokens: choice.hitTokens,
    });
  }

  /** As vLLM adds it up: tokens of every prompt once, cached ones of the last. */
  #usage(): AnswerUsage {
    const last = this.#choices.at(-1)!;
    let completionTokens = 0;
    for (const { tokenIds } of this.#choices) completionTokens += tokenIds.length;
    return {
      promptTokens: this.#request.prompts.reduce((sum, prompt) => sum + prompt.length, 0),
      completionTokens,
      cachedTokens: this.#deps.tellsCachedTokens ? last.cachedTokens : null,
      createdCacheTokens: last.createdCacheTokens,
    };
  }
}
