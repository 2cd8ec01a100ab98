import { batonError, type KvEvent } from "@baton/domain";
import { hashFromBigInt, type Prng } from "@baton/kit";
import type { Timers } from "@baton/ports";
import type { FakeExchange, FakeKvEventSource } from "@baton/ports/testing";

/** A handle that reached the frontend: the prefill engine pins its blocks until it is pulled. */
export interface IssuedHandle {
  readonly id: string;
  readonly workerId: string;
  /** Request id and attempt, as the engine knows them. */
  readonly engineRequestId: string;
  /** Decode worker of each leg that presented it. */
  readonly presentedTo: string[];
}

type Weights<K extends string> = Readonly<Record<K, number>>;

const prefillWays = {
  answer: 12,
  "server error": 1,
  busy: 1,
  refusal: 0.4,
  unreachable: 1,
  garbage: 0.5,
  hang: 0.3,
} satisfies Weights<string>;

const decodeWays = {
  answer: 12,
  "server error": 1,
  busy: 1,
  refusal: 0.4,
  unreachable: 1,
  "break in the middle": 1,
  "end without a last event": 0.5,
  empty: 0.4,
  hang: 0.3,
} satisfies Weights<string>;

const blockTokens = 16;

/** Engines that answer, fail and hang by chance, and remember every handle. */
export class PlayedEngines {
  readonly handles = new Map<string, IssuedHandle>();
  readonly #prng: Prng;
  readonly #timers: Timers;
  readonly #kv: FakeKvEventSource;
  readonly #isFailing: boolean;
  #count = 0;

  constructor(options: {
    readonly prng: Prng;
    readonly timers: Timers;
    readonly kv: FakeKvEventSource;
    readonly isFailing: boolean;
  }) {
    this.#prng = options.prng;
    this.#timers = options.timers;
    this.#kv = options.kv;
    this.#isFailing = options.isFailing;
  }

  readonly onDispatch = (exchange: FakeExchange): void => {
    if (exchange.call.workerId.startsWith("p")) this.#prefill(exchange);
    else this.#decode(exchange);
  };

  #prefill(exchange: FakeExchange): void {
    const body = JSON.parse(exchange.body) as { prompt: number[] };
    const tokenIds = Uint32Array.from(body.prompt);
    const way = this.#isFailing ? this.#choose(prefillWays) : "answer";
    if (way === "hang") {
      this.#hang(exchange);
      return;
    }
    this.#timers.after(1 + this.#prng.below(way === "answer" ? 400 : 50), () => {
      if (this.#failed(exchange, way)) return;
      if (way === "garbage") exchange.answer(200, {}, '{"kv_transfer_params":{"x" 1}}');
      else this.#hand(exchange, tokenIds);
    });
  }

  #hand(exchange: FakeExchange, tokenIds: Uint32Array): void {
    if (exchange.isOver) return;
    const { workerId, headers } = exchange.call;
    const id = `h${++this.#count}`;
    this.handles.set(id, {
      id,
      workerId,
      engineRequestId: headers["x-request-id"]!,
      presentedTo: [],
    });
    this.#kv.feedOf(workerId)?.push([storedEvent(tokenIds)]);
    const handle = {
      do_remote_prefill: true,
      remote_engine_id: workerId,
      remote_request_id: id,
      remote_host: "10.0.0.1",
      remote_port: 5_600,
      remote_block_ids: [[...Array(Math.ceil(tokenIds.length / blockTokens)).keys()]],
    };
    const usage = { prompt_tokens: tokenIds.length, completion_tokens: 1 };
    exchange.answer(200, {}, JSON.stringify({ usage, kv_transfer_params: handle }));
  }

  #decode(exchange: FakeExchange): void {
    const body = JSON.parse(exchange.body) as {
      stream?: boolean;
      kv_transfer_params?: { remote_request_id: string };
    };
    const id = body.kv_transfer_params?.remote_request_id;
    if (id !== undefined) this.handles.get(id)!.presentedTo.push(exchange.call.workerId);
    const way = this.#isFailing ? this.#choose(decodeWays) : "answer";
    if (way === "hang") {
      this.#hang(exchange);
      return;
    }
    this.#timers.after(1 + this.#prng.below(60), () => {
      if (this.#failed(exchange, way)) return;
      exchange.head(200, {});
      if (way === "empty") exchange.end();
      else this.#stream(exchange, body.stream === true, way, 1 + this.#prng.below(6));
    });
  }

  /** Each piece names its leg, so that a client sees when two legs are mixed. */
  #stream(exchange: FakeExchange, isStream: boolean, way: string, left: number): void {
    const leg = JSON.stringify({ leg: exchange.call.headers["x-request-id"] });
    exchange.data(isStream ? `data: ${leg}\n\n` : `${leg} `);
    if (left > 1) {
      const again = () => this.#stream(exchange, isStream, way, left - 1);
      this.#timers.after(this.#prng.below(40), again);
      return;
    }
    if (way === "break in the middle") exchange.fault(lost(exchange));
    else {
      const isWhole = way !== "end without a last event";
      if (isStream && isWhole) exchange.data("data: [DONE]\n\n");
      exchange.end();
    }
  }

  #failed(exchange: FakeExchange, way: string): boolean {
    switch (way) {
      case "server error":
        exchange.answer(500, {}, "CUDA error");
        return true;
      case "busy":
        exchange.answer(503, {}, "queue is full");
        return true;
      case "refusal":
        exchange.answer(400, {}, '{"error":{"message":"too long"}}');
        return true;
      case "unreachable":
        exchange.fault(lost(exchange), false);
        return true;
      default:
        return false;
    }
  }

  #hang(exchange: FakeExchange): void {
    const { workerId, headersTimeoutMs } = exchange.call;
    const error = batonError("BATON_ENGINE_TIMEOUT", `${workerId}: no answer`);
    this.#timers.after(headersTimeoutMs, () => exchange.fault(error));
  }

  #choose<K extends string>(weights: Weights<K>): K {
    const entries = Object.entries(weights) as [K, number][];
    let draw = this.#prng.next() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [way, weight] of entries) {
      draw -= weight;
      if (draw < 0) return way;
    }
    return entries[0]![0];
  }
}

function lost({ call }: FakeExchange) {
  return batonError("BATON_ENGINE_UNREACHABLE", `worker ${call.workerId}: ECONNRESET`);
}

function storedEvent(tokenIds: Uint32Array): KvEvent {
  const count = Math.floor(tokenIds.length / blockTokens);
  const first = BigInt(tokenIds[0] ?? 0) << 32n;
  return {
    kind: "stored",
    engineHashes: hashFromBigInt(...Array.from({ length: count }, (_, at) => first + BigInt(at))),
    parentEngineHash: null,
    tokenIds: tokenIds.slice(0, count * blockTokens),
    blockSizeTokens: blockTokens,
    medium: "GPU",
    loraName: null,
    cacheSalt: null,
    extraKeys: null,
    groupIndex: null,
    specKind: null,
  };
}
