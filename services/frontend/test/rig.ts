import { createMemoryBus } from "@baton/bus";
import { createFrontend, type FrontendConfig, type metricDefinitions } from "@baton/frontend";
import { ManualClock } from "@baton/kit/testing";
import type { ClientRequest, Tokenizer } from "@baton/ports";
import {
  FakeEngineClient,
  type FakeExchange,
  ManualTimers,
  MemoryLogger,
  MemoryMetrics,
  RecordingBus,
  RecordingSink,
  settle,
  turnTimers,
} from "@baton/ports/testing";
import type { Test } from "tap";
import { FakeScheduler } from "./fake-scheduler.ts";

export const tokenizerOff: Tokenizer = {
  tokenize: () => Promise.resolve(null),
  close: () => Promise.resolve(),
};

const config: FrontendConfig = {
  frontendId: "f0",
  incarnation: "7",
  tokenizerMode: "none",
  requestsLiveMax: 100,
  deadlineMs: 600_000,
  attemptsMax: 2,
  placeDeadlineMs: 600_000,
  reserveDeadlineMs: 250,
  claimDeadlineMs: 2_000,
  drainMsMax: 500,
  abandonMsMax: 2_000,
  headersTimeoutMs: 60_000,
  bodyTimeoutMs: 50_000,
};

/** Text of a handle with what no JSON library keeps: digits beyond 2^53, white space, escapes. */
export const handleText = (id: string, tokens = 5): string =>
  `{"do_remote_prefill":true, "do_remote_decode":false,"remote_engine_id":"e\\u0031",` +
  `"remote_request_id":"${id}","remote_host":"10.0.0.1","remote_port":5600,` +
  `"remote_block_ids":[[18446744073709551615]],"remote_num_tokens":${tokens},"x":1.50000000000000000001}`;

export const prefillAnswer = (id: string, tokens = 5, handle = handleText(id, tokens)): string =>
  `{"id":"c","choices":[],"usage":{"prompt_tokens":${tokens},"completion_tokens":1,` +
  `"prompt_tokens_details":{"cached_tokens":3}},"kv_transfer_params":${handle}}`;

export const sse = (...data: string[]): string => data.map((each) => `data: ${each}\n\n`).join("");
export const sseHead = { "content-type": "text/event-stream; charset=utf-8" };
export const jsonHead = { "content-type": "application/json" };

export interface Sent {
  readonly requestId: string;
  readonly sink: RecordingSink;
  /** Exchanges of this request so far, in order. */
  exchanges(): FakeExchange[];
  leave(): void;
}

/** A frontend on a memory bus with manual time, engines that the test plays, and two fake schedulers. */
export async function openRig(
  t: Test,
  options: {
    readonly config?: Partial<FrontendConfig>;
    readonly tokenizer?: Tokenizer;
    /** Models whose schedulers are there from the start. */
    readonly models?: readonly string[];
  } = {},
) {
  const clock = new ManualClock();
  const timers = new ManualTimers(clock);
  const logger = new MemoryLogger();
  const metrics = new MemoryMetrics<typeof metricDefinitions>();
  const hub = createMemoryBus({ timers: turnTimers(timers) });
  const schedulerBus = hub.connect({ name: "schedulers" });
  const bus = new RecordingBus(hub.connect({ name: "frontend" }));
  const engines = new FakeEngineClient();
  const schedulers = new Map<string, FakeScheduler>();
  const scheduler = (pool: "prefill" | "decode", model = "m"): FakeScheduler => {
    const key = `${model}/${pool}`;
    let found = schedulers.get(key);
    if (found === undefined) {
      const ids = pool === "prefill" ? ["p0", "p1"] : ["d0", "d1"];
      found = new FakeScheduler(schedulerBus, model, pool, ids);
      schedulers.set(key, found);
    }
    return found;
  };
  const frontend = createFrontend(
    { ...config, ...options.config },
    {
      clock,
      timers,
      logger,
      metrics,
      bus,
      engineClient: engines,
      tokenizer: options.tokenizer ?? tokenizerOff,
    },
  );
  await frontend.start();
  for (const model of options.models ?? ["m"]) {
    for (const pool of ["prefill", "decode"] as const) {
      scheduler(pool, model).serve();
      scheduler(pool, model).tellFleet();
    }
  }
  await settle();
  t.teardown(async () => {
    const drained = frontend.drain(0);
    timers.advance(60_000);
    await drained;
  });
  let ids = 0;
  const idleTimers = timers.pending;
  return {
    clock,
    timers,
    logger,
    metrics,
    hub,
    bus,
    engines,
    frontend,
    scheduler,
    prefill: scheduler("prefill"),
    decode: scheduler("decode"),
    /** Sends one request and lets it come to rest. */
    async send(
      body: string | Uint8Array = chat(),
      over: Partial<Omit<ClientRequest, "body">> = {},
    ): Promise<Sent> {
      const sink = new RecordingSink();
      const requestId = over.requestId ?? `r${++ids}`;
      frontend.generate(
        {
          requestId,
          route: "chat",
          headers: {},
          tenant: null,
          body: typeof body === "string" ? Buffer.from(body) : body,
          ...over,
        },
        sink,
      );
      await settle();
      return {
        requestId,
        sink,
        exchanges: () =>
          engines.exchanges.filter((each) =>
            each.call.headers["x-request-id"]?.startsWith(`${requestId}-`),
          ),
        leave: () => sink.leave(),
      };
    },
    async tick(ms: number): Promise<void> {
      timers.advance(ms);
      await settle();
    },
    /** Answers the prefill leg that is under way, and lets the claim go through. */
    async prefilled(sent: Sent, handleId = `${sent.requestId}-handle`): Promise<FakeExchange> {
      sent.exchanges().at(-1)!.answer(200, jsonHead, prefillAnswer(handleId));
      await settle();
      return sent.exchanges().at(-1)!;
    },
    total(result: string, route = "chat"): number {
      return metrics.value("baton_frontend_requests_total", { route, result }) ?? 0;
    },
    /** Timers that requests have set and not cancelled. */
    ownTimers: () => timers.pending - idleTimers,
    live: () => metrics.value("baton_frontend_live_requests") ?? 0,
  };
}

export type Rig = Awaited<ReturnType<typeof openRig>>;

export function chat(more = "", model = "m"): string {
  const rest = more === "" ? "" : `,${more}`;
  return `{"model":"${model}","messages":[{"role":"user","content":"hello"}]${rest}}`;
}
