import {
  decisionsAnswer,
  decisionsQuery,
  fleet,
  frontendBeat,
  handle,
  handleAnswer,
  type MessageType,
  outcome,
  place,
  placed,
  reserve,
  reserved,
} from "@baton/protocol";

/** T with every optional field given, so that an example names all there are. */
type Whole<T> = T extends string | number | boolean | null | Uint8Array
  ? T
  : T extends readonly (infer E)[]
    ? readonly Whole<E>[]
    : { readonly [K in keyof T]-?: Whole<Exclude<T[K], undefined>> };

export interface Example {
  readonly name: string;
  /** Of the union that the message is or holds; null when it has none. */
  readonly kind: string | null;
  readonly value: unknown;
  readonly payload: Uint8Array;
  /** What the code reads from bytes of this message. */
  read(payload: Uint8Array): unknown;
}

function example<T>(type: MessageType<T>, value: Whole<T>, kind: string | null = null): Example {
  return {
    name: type.name,
    kind,
    value,
    payload: type.encode(value as T),
    read: (payload) => type.decode(payload),
  };
}

/** One example per kind; a kind that is missing here does not compile. */
function each<T, K extends string>(
  type: MessageType<T>,
  values: { readonly [Kind in K]: Whole<T> },
): Example[] {
  return Object.entries<Whole<T>>(values).map(([kind, value]) => example(type, value, kind));
}

type Kind<M> =
  M extends MessageType<infer T> ? (T extends { kind: infer K extends string } ? K : never) : never;
type StageKind =
  typeof outcome extends MessageType<infer T>
    ? T extends { stage: { kind: infer K } }
      ? K
      : never
    : never;

const attempt = { requestId: "7f0c", attempt: 1 };
const frontend = { frontendId: "frontend-a", incarnation: "81" };
const prefill = { workerId: "p0", incarnation: "1796079004.5.1" };
const decode = { workerId: "d1", incarnation: "1796079004.4.1" };
const address = (worker: typeof prefill, url: string) => ({
  ...worker,
  url,
  dialect: "vllm" as const,
  dpRank: null,
});
const hashes = Uint8Array.from([0x1f, 0x83, 0xd9, 0xab, 0xfb, 0x41, 0xbd, 0x6b]);
const prompt = {
  promptTokens: 20,
  promptBytes: 92,
  hashSets: [{ blockSizeTokens: 16, hashes }],
  maxOutputTokens: 64,
};
const error = {
  code: "BATON_SATURATED",
  message: "full",
  param: "model",
  cause: "queue",
  retryAfterS: 2,
} as const;

const candidate = {
  worker: address(prefill, "http://p0:8000"),
  isAggregated: false,
  connector: "nixl-pull",
  blockSizeTokens: 16,
  cachedTokens: { gpu: 16, host: 0, disk: 0 },
  predictedWaitMs: 0,
  predictedPrefillMs: 5.25,
  costMs: 5.25,
};

const stage = (value: Whole<Parameters<typeof outcome.encode>[0]["stage"]>) => ({
  ...attempt,
  frontend,
  stage: value,
});

export const examples: readonly Example[] = [
  example(place, { ...attempt, frontend, ...prompt, deadlineMs: 30_000, excluded: ["p3"] }),
  ...each<Parameters<typeof placed.encode>[0], Kind<typeof placed>>(placed, {
    bound: { kind: "bound", candidates: [candidate] },
    rejected: { kind: "rejected", error },
  }),
  example(reserve, {
    ...attempt,
    frontend,
    ...prompt,
    deadlineMs: 29_998,
    candidates: [{ worker: prefill, isAggregated: false, connector: "nixl-pull" }],
    excluded: ["d0"],
  }),
  ...each<Parameters<typeof reserved.encode>[0], Kind<typeof reserved>>(reserved, {
    remote: {
      kind: "remote",
      prefill,
      decode: address(decode, "http://d1:8000"),
      connector: "nixl-pull",
    },
    local: { kind: "local", decode: address(decode, "http://d1:8000") },
    refused: { kind: "refused", error },
  }),
  example(handle, {
    ...attempt,
    prefill,
    decode,
    connector: "nixl-pull",
    handleId: "cmpl-7f0c-1-0",
    ageMs: 0.5,
    promptTokens: 20,
  }),
  ...each<Parameters<typeof handleAnswer.encode>[0], Kind<typeof handleAnswer>>(handleAnswer, {
    claimed: { kind: "claimed", presentWithinMs: 27_999.5 },
    refused: { kind: "refused", reason: "handle was pulled by 7f0c#1 before" },
  }),
  ...each<Parameters<typeof outcome.encode>[0], StageKind>(outcome, {
    moved: stage({ kind: "moved", prefill }),
    returned: stage({ kind: "returned", reason: "decode worker prefills itself" }),
    prefilled: stage({ kind: "prefilled", legMs: 6.5, cachedTokens: 16, promptTokens: 20 }),
    "prefill-failed": stage({ kind: "prefill-failed", workerFault: true, reason: "answered 500" }),
    "first-byte": stage({ kind: "first-byte", legMs: 14 }),
    ended: stage({ kind: "ended", end: "done", workerFault: false, outputTokens: 64, reason: "" }),
  }),
  example(frontendBeat, { frontend, isLeaving: false, requestsLive: 3 }),
  example(fleet, {
    model: "Qwen/Qwen3-32B",
    pool: "prefill",
    schedulerId: "prefill-scheduler-a",
    isLeaving: false,
    indexBlockSizes: [16],
    maxModelLenTokens: 40_960,
    workers: [
      {
        workerId: "p0",
        url: "http://p0:8000",
        incarnation: "1796079004.5.1",
        state: "up",
        reason: "answers",
      },
    ],
  }),
  example(decisionsQuery, { requestId: "7f0c", limit: 2 }),
  example(decisionsAnswer, {
    records: [
      {
        pool: "prefill",
        requestId: "7f0c",
        attempt: 1,
        policy: "cost",
        wallMs: 1_796_079_020_503,
        promptTokens: 20,
        candidates: [
          {
            worker: prefill,
            rejected: null,
            terms: [{ name: "compute", value: 5.25, unit: "ms" }],
            costMs: 5.25,
          },
        ],
        winner: prefill,
        tieDraw: 0.625,
        reason: "only candidate",
      },
    ],
  }),
];
