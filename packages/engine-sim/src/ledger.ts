import type { EngineModel } from "@baton/engine-model";
import { type HashList, Ring } from "@baton/kit";
import { hashBlocks, namespaceRoot } from "@baton/kv-blocks";
import { HashCounter } from "./hash-counter.ts";

const requestsKept = 100;
const handlesKept = 10_000;

/** What came in with one request and matters to a test. */
interface SeenRequest {
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly kvTransferParams: unknown;
  readonly maxTokens: unknown;
  readonly stream: unknown;
}

/** What a test reads to see what an engine really did. */
export class Ledger {
  readonly #model: EngineModel;
  readonly #root: HashList;
  readonly #computed = new HashCounter();
  readonly #handlesSeen = new Map<string, number>();
  readonly #requests = new Ring<SeenRequest>(requestsKept);
  handlesIssued = 0;

  constructor(model: EngineModel, modelName: string) {
    this.#model = model;
    this.#root = namespaceRoot({ model: modelName, loraName: null, cacheSalt: null });
  }

  request(
    path: string,
    headers: Readonly<Record<string, string | string[] | undefined>>,
    body: Record<string, unknown>,
  ): void {
    const own: Record<string, string> = {};
    for (const [name, value] of Object.entries(headers)) {
      if (name.startsWith("x-") && typeof value === "string") own[name] = value;
    }
    this.#requests.push({
      path,
      headers: own,
      kvTransferParams: body["kv_transfer_params"] ?? null,
      maxTokens: body["max_tokens"] ?? body["max_completion_tokens"] ?? null,
      stream: body["stream"] ?? null,
    });
  }

  handle(remoteRequestId: string | null): void {
    const key = remoteRequestId ?? "";
    this.#handlesSeen.set(key, (this.#handlesSeen.get(key) ?? 0) + 1);
    if (this.#handlesSeen.size <= handlesKept) return;
    for (const oldest of this.#handlesSeen.keys()) {
      this.#handlesSeen.delete(oldest);
      break;
    }
  }

  /** Content hashes of a prompt's full blocks, in Baton's form; for `computed`. */
  contentHashes(promptIds: Uint32Array): HashList {
    return hashBlocks(promptIds, this.#model.cache.blockSizeTokens, this.#root);
  }

  /** Blocks that end in prompt tokens (fromToken, toToken] were computed once more. */
  computed(hashes: HashList, fromToken: number, toToken: number): void {
    const size = this.#model.cache.blockSizeTokens;
    const end = Math.min(Math.floor(toToken / size), hashes.length / 2);
    this.#computed.add(hashes, Math.floor(fromToken / size), end);
  }

  computedBlocks(): Buffer {
    return this.#computed.toBytes();
  }

  /** Requests and headers newest first. */
  view(): Record<string, unknown> {
    const { cache, counters } = this.#model;
    const requests = [...this.#requests.newestFirst()];
    return {
      blocksHeld: this.#model.exportedBlocks,
      blocksUsed: cache.usedBlocks,
      blocksFree: cache.freeBlocks,
      blocksCached: cache.hashedBlocks,
      requestsRunning: this.#model.running,
      requestsWaiting: this.#model.waitingForCapacity + this.#model.waitingForTransfer,
      handlesIssued: this.handlesIssued,
      handlesSeen: [...this.#handlesSeen].map(([remoteRequestId, times]) => ({
        remoteRequestId,
        times,
      })),
      handlesExpired: counters.exportsExpired,
      lateNotices: counters.lateNotices,
      tokensComputed: counters.computedTokens,
      tokensCached: counters.hitTokens,
      tokensTransferred: counters.transferredTokens,
      bytesTransferred: counters.transferredBytes,
      generatedTokens: counters.generatedTokens,
      preemptions: counters.preemptions,
      steps: counters.steps,
      aborts: counters.aborted,
      finished: counters.finished,
      computedBlocks: this.#computed.size,
      headersSeen: requests.map(({ headers }) => headers),
      lastBodies: requests.map(({ path, kvTransferParams, maxTokens, stream }) => ({
        path,
        kv_transfer_params: kvTransferParams,
        max_tokens: maxTokens,
        stream,
      })),
    };
  }
}
