import type { Happening } from "@baton/engine-model";
import type { HashList } from "@baton/kit";
import type { EngineClock } from "./engine-clock.ts";
import type { RequestListener } from "./engine-runtime.ts";
import type { KvPuller } from "./kv-puller.ts";
import type { Ledger } from "./ledger.ts";
import type { RemoteKv } from "./remote-kv.ts";
import type { FinishReason, RequestMetrics } from "./request-metrics.ts";

export interface ChoiceOwner {
  onToken(choice: Choice, token: Happening & { kind: "token" }): void;
  onFinished(choice: Choice): void;
  flush(): void;
}

export interface ChoiceOptions {
  readonly index: number;
  readonly engineRequestId: string;
  readonly promptIds: Uint32Array;
  readonly tokensMax: number;
  readonly tokensAsked: number | null;
  readonly choicesAsked: number;
  readonly remote: RemoteKv | null;
  readonly owner: ChoiceOwner;
  readonly clock: EngineClock;
  readonly metrics: RequestMetrics;
  readonly ledger: Ledger;
  readonly puller: KvPuller;
  readonly bytesPerBlock: number;
  readonly blockSizeTokens: number;
}

/** One of a request's answers, as the engine works on it: its progress and its figures. */
export class Choice implements RequestListener {
  readonly options: ChoiceOptions;
  readonly #submittedMs: number;
  readonly texts: string[] = [];
  readonly tokenIds: number[] = [];
  exportedBlocks: readonly number[] | null = null;
  hitTokens = 0;
  #contentHashes: HashList | null = null;
  #pulledBlocks = 0;
  #transferMs = 0;
  #preemptions = 0;
  #admittedMs: number;
  #firstTokenMs = 0;
  #lastTokenMs = 0;

  constructor(options: ChoiceOptions) {
    this.options = options;
    this.#submittedMs = options.clock.nowMs();
    this.#admittedMs = this.#submittedMs;
  }

  /** What a client reads as cached: a decode engine passes the prefill engine's figure on. */
  get cachedTokens(): number {
    const { remote, promptIds } = this.options;
    return remote === null ? this.hitTokens : (remote.prefillCachedTokens ?? promptIds.length);
  }

  /** Tokens that this request added to the cache by computing them. */
  get createdCacheTokens(): number {
    const { remote, promptIds, blockSizeTokens } = this.options;
    if (remote !== null) return 0;
    const full = Math.floor(promptIds.length / blockSizeTokens) * blockSizeTokens;
    return Math.max(0, full - this.hitTokens);
  }

  onAdmitted(hitTokens: number, atMs: number): void {
    this.hitTokens = hitTokens;
    this.#admittedMs = atMs;
  }

  onPull(blocks: number, atMs: number): void {
    this.#pulledBlocks = blocks;
    this.#transferMs = atMs;
    void this.options.puller.fetch(this.options.engineRequestId, blocks);
  }

  onTransferred(atMs: number): void {
    const { metrics, puller, bytesPerBlock, engineRequestId } = this.options;
    const seconds = this.#seconds(atMs - this.#transferMs);
    metrics.transfer(seconds, this.#pulledBlocks * bytesPerBlock, this.#pulledBlocks);
    void puller.complete(engineRequestId);
  }

  onPrefilled(fromToken: number, toToken: number): void {
    const { ledger, promptIds } = this.options;
    this.#contentHashes ??= ledger.contentHashes(promptIds);
    ledger.computed(this.#contentHashes, fromToken, toToken);
  }

  onToken(token: Happening & { kind: "token" }): void {
    const { metrics, owner } = this.options;
    if (this.tokenIds.length === 0) {
      this.#firstTokenMs = token.atMs;
      metrics.firstToken(this.#seconds(token.atMs - this.#submittedMs));
    } else metrics.nextToken(this.#seconds(token.atMs - this.#lastTokenMs));
    this.#lastTokenMs = token.atMs;
    this.tokenIds.push(token.tokenId);
    owner.onToken(this, token);
  }

  onFinished(end: Happening & { kind: "finished" }): void {
    this.exportedBlocks = end.exportedBlocks;
    this.#preemptions = end.preemptions;
    this.options.owner.onFinished(this);
  }

  flush(): void {
    this.options.owner.flush();
  }

  /** Enters the request's figures; once, at its end. */
  record(reason: FinishReason): void {
    const { metrics, promptIds, tokensAsked, choicesAsked, clock } = this.options;
    const endMs = this.tokenIds.length > 0 ? this.#lastTokenMs : clock.nowMs();
    const firstMs = this.tokenIds.length > 0 ? this.#firstTokenMs : endMs;
    metrics.finished(reason, {
      promptTokens: promptIds.length,
      cachedTokens: Math.min(this.cachedTokens, promptIds.length),
      generatedTokens: this.tokenIds.length,
      tokensAsked,
      choices: choicesAsked,
      preemptions: this.#preemptions,
      queueS: this.#seconds(this.#admittedMs - this.#submittedMs),
      prefillS: this.#seconds(firstMs - this.#admittedMs),
      decodeS: this.#seconds(endMs - firstMs),
      totalS: this.#seconds(endMs - this.#submittedMs),
    });
  }

  #seconds(modelMs: number): number {
    return Math.max(0, modelMs) / this.options.clock.speed / 1000;
  }
}
