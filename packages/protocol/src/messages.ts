import type {
  BatonError,
  DecisionTerm,
  TermUnit,
  WorkerAddress,
  WorkerIdentity,
} from "@baton/domain";
import { message } from "./message.ts";
import {
  blockHashSets,
  errorShape,
  frontendIdentity,
  tierCounts,
  workerAddress,
  workerIdentity,
} from "./parts.ts";
import {
  bool,
  type Infer,
  list,
  nullable,
  oneOf,
  real,
  type Shape,
  struct,
  text,
  uint,
  union,
} from "./shape.ts";

const attemptKey = { requestId: text, attempt: uint };

/** frontend → prefill-scheduler: where shall this prompt be prefilled? Idempotent by request and attempt. */
export const place = message(
  "place",
  struct({
    ...attemptKey,
    frontend: frontendIdentity,
    /** Null when the prompt was not tokenised. */
    promptTokens: nullable(uint),
    promptBytes: uint,
    hashSets: blockHashSets,
    maxOutputTokens: nullable(uint),
    /** Left until the request's deadline, when this was sent. */
    deadlineMs: uint,
    /** Worker ids that failed this request before. */
    excluded: list(text, 64),
  }),
);

/** A prefill worker offered for a request, best first. */
const candidateShape = struct({
  worker: workerAddress,
  /** `both` engines need no transfer. */
  isAggregated: bool,
  connector: text,
  /** Engine block of the worker, for the check of its handles; null when not known. */
  blockSizeTokens: nullable(uint),
  /** Counts of tokens, each once, at its best tier. */
  cachedTokens: tierCounts,
  predictedWaitMs: real,
  predictedPrefillMs: real,
  costMs: real,
});
export type PlaceCandidate = Infer<typeof candidateShape>;

type Placed =
  | { readonly kind: "bound"; readonly candidates: readonly PlaceCandidate[] }
  | { readonly kind: "rejected"; readonly error: BatonError };

/** The first candidate is bound provisionally until an `outcome` says otherwise. */
export const placed = message<Placed>(
  "placed",
  union<Placed>({
    bound: struct({ candidates: list(candidateShape, 3) }),
    rejected: struct({ error: errorShape }),
  }),
);

/** frontend → decode-scheduler: room and link for one of these prefill workers. Idempotent. */
export const reserve = message(
  "reserve",
  struct({
    ...attemptKey,
    frontend: frontendIdentity,
    promptTokens: nullable(uint),
    promptBytes: uint,
    hashSets: blockHashSets,
    maxOutputTokens: nullable(uint),
    deadlineMs: uint,
    /** Empty: no prefill worker is to be used, the whole request runs on a decode worker. */
    candidates: list(struct({ worker: workerIdentity, isAggregated: bool, connector: text }), 3),
    excluded: list(text, 64),
  }),
);

type Reserved =
  | {
      readonly kind: "remote";
      readonly prefill: WorkerIdentity;
      readonly decode: WorkerAddress;
      readonly connector: string;
    }
  /** No transfer: the whole request runs on `decode`. */
  | { readonly kind: "local"; readonly decode: WorkerAddress }
  | { readonly kind: "refused"; readonly error: BatonError };

export const reserved = message<Reserved>(
  "reserved",
  union<Reserved>({
    remote: struct({ prefill: workerIdentity, decode: workerAddress, connector: text }),
    local: struct({ decode: workerAddress }),
    refused: struct({ error: errorShape }),
  }),
);

/** frontend → decode-scheduler: a prefill answered with this handle; may it be presented? */
export const handle = message(
  "handle",
  struct({
    ...attemptKey,
    prefill: workerIdentity,
    decode: workerIdentity,
    connector: text,
    /** The engine's own id of the handle; with `prefill` it is unique. */
    handleId: text,
    /** From the prefill answer to this message. */
    ageMs: real,
    promptTokens: nullable(uint),
  }),
);

type HandleAnswer =
  | { readonly kind: "claimed"; readonly presentWithinMs: number }
  | { readonly kind: "refused"; readonly reason: string };

export const handleAnswer = message<HandleAnswer>(
  "handle-answer",
  union<HandleAnswer>({
    claimed: struct({ presentWithinMs: real }),
    refused: struct({ reason: text }),
  }),
);

type Stage =
  /** The decode side took another candidate than the first. */
  | { readonly kind: "moved"; readonly prefill: WorkerIdentity }
  /** The provisional bind is handed back, nothing was dispatched. */
  | { readonly kind: "returned"; readonly reason: string }
  /** The prefill leg ended; its load is gone, its blocks are pinned until the pull. */
  | {
      readonly kind: "prefilled";
      readonly legMs: number;
      readonly cachedTokens: number | null;
      readonly promptTokens: number | null;
    }
  /** The prefill leg failed or was given up. */
  | { readonly kind: "prefill-failed"; readonly workerFault: boolean; readonly reason: string }
  /** First byte of the decode leg: the transfer is over. */
  | { readonly kind: "first-byte"; readonly legMs: number }
  /** The attempt is over; every lease of it ends. */
  | {
      readonly kind: "ended";
      readonly end: EndKind;
      readonly workerFault: boolean;
      readonly outputTokens: number | null;
      readonly reason: string;
    };

export type EndKind = "done" | "client-closed" | "failed" | "retried";
const endKind = oneOf<EndKind>("done", "client-closed", "failed", "retried");

const stage: Shape<Stage> = union<Stage>({
  moved: struct({ prefill: workerIdentity }),
  returned: struct({ reason: text }),
  prefilled: struct({ legMs: real, cachedTokens: nullable(uint), promptTokens: nullable(uint) }),
  "prefill-failed": struct({ workerFault: bool, reason: text }),
  "first-byte": struct({ legMs: real }),
  ended: struct({ end: endKind, workerFault: bool, outputTokens: nullable(uint), reason: text }),
});

/** frontend → both schedulers, published: what became of an attempt. */
export const outcome = message(
  "outcome",
  struct({ ...attemptKey, frontend: frontendIdentity, stage }),
);

/** frontend → schedulers, published each second; three missed ones free its leases. */
export const frontendBeat = message(
  "frontend",
  struct({ frontend: frontendIdentity, isLeaving: bool, requestsLive: uint }),
);

const workerView = struct({
  workerId: text,
  /** For /tokenize; plans carry their own addresses. */
  url: text,
  incarnation: nullable(text),
  state: oneOf<"unknown" | "up" | "down" | "draining">("unknown", "up", "down", "draining"),
  reason: text,
});

/** scheduler → frontends, published each second and on a change: what its pool can do. */
export const fleet = message(
  "fleet",
  struct({
    model: text,
    pool: oneOf<"prefill" | "decode">("prefill", "decode"),
    schedulerId: text,
    isLeaving: bool,
    /** Sizes to hash a prompt by. */
    indexBlockSizes: list(uint, 16),
    maxModelLenTokens: nullable(uint),
    workers: list(workerView, 65_536),
  }),
);

/** anybody → scheduler: decision records, newest first. */
export const decisionsQuery = message(
  "decisions",
  struct({ requestId: nullable(text), limit: uint }),
);

const termUnit = oneOf<TermUnit>("ms", "tokens", "blocks", "ratio", "bytes", "requests");
const term: Shape<DecisionTerm> = struct({ name: text, value: real, unit: termUnit });
const decisionRecord = struct({
  pool: oneOf<"prefill" | "decode">("prefill", "decode"),
  requestId: text,
  attempt: uint,
  policy: text,
  wallMs: real,
  promptTokens: nullable(uint),
  candidates: list(
    struct({
      worker: workerIdentity,
      rejected: nullable(text),
      terms: list(term, 64),
      costMs: nullable(real),
    }),
    65_536,
  ),
  winner: nullable(workerIdentity),
  tieDraw: real,
  reason: text,
});

export const decisionsAnswer = message(
  "decisions-answer",
  struct({ records: list(decisionRecord, 10_000) }),
);
