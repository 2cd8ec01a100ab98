import { type Pool, type WorkerAddress, workerKey } from "@baton/domain";
import type { Bus } from "@baton/ports";
import {
  decisionsAnswer,
  decisionsQuery,
  fleet,
  frontendBeat,
  handle,
  handleAnswer,
  type MessageOf,
  outcome,
  type PlaceCandidate,
  place,
  placed,
  reserve,
  reserved,
  subjectOf,
} from "@baton/protocol";

type Fleet = MessageOf<typeof fleet>;

export const address = (workerId: string): WorkerAddress => ({
  workerId,
  incarnation: "1",
  url: `http://${workerId}`,
  dialect: "vllm",
  dpRank: null,
});

export const candidate = (
  workerId: string,
  over: Partial<PlaceCandidate> = {},
): PlaceCandidate => ({
  worker: address(workerId),
  isAggregated: false,
  connector: "nixl-pull",
  blockSizeTokens: 16,
  cachedTokens: { gpu: 0, host: 0, disk: 0 },
  predictedWaitMs: 0,
  predictedPrefillMs: 100,
  costMs: 100,
  ...over,
});

const rank = (over: Partial<WorkerAddress>) => ({ ...address("d0"), ...over });

function read<T>(decoded: { ok: true; value: T } | { ok: false; error: unknown }): T {
  if (!decoded.ok) throw new Error(JSON.stringify(decoded.error));
  return decoded.value;
}

/** One pool's scheduler as a test plays it: it keeps what it hears and answers as it is told. */
export class FakeScheduler {
  readonly #bus: Bus;
  readonly #model: string;
  readonly #pool: Pool;
  readonly places: MessageOf<typeof place>[] = [];
  readonly reserves: MessageOf<typeof reserve>[] = [];
  readonly handles: MessageOf<typeof handle>[] = [];
  readonly outcomes: MessageOf<typeof outcome>[] = [];
  readonly beats: MessageOf<typeof frontendBeat>[] = [];
  readonly queries: MessageOf<typeof decisionsQuery>[] = [];
  readonly payloads: Uint8Array[] = [];
  fleet: Fleet;
  records: MessageOf<typeof decisionsAnswer>["records"] = [];
  decodeRank: number | null = null;
  onPlace: (message: MessageOf<typeof place>) => Answer<typeof placed>;
  onReserve: (message: MessageOf<typeof reserve>) => Answer<typeof reserved>;
  onHandle: (message: MessageOf<typeof handle>) => Answer<typeof handleAnswer>;

  constructor(bus: Bus, model: string, pool: Pool, workerIds: readonly string[]) {
    this.#bus = bus;
    this.#model = model;
    this.#pool = pool;
    this.fleet = {
      model,
      pool,
      schedulerId: "fake",
      isLeaving: false,
      indexBlockSizes: pool === "prefill" ? [16] : [],
      maxModelLenTokens: 4_096,
      workers: workerIds.map((workerId) => ({
        workerId,
        url: `http://${workerId}`,
        incarnation: "1",
        state: "up",
        reason: "answers",
      })),
    };
    const left = (excluded: readonly string[]) => workerIds.filter((id) => !excluded.includes(id));
    this.onPlace = ({ excluded }) => ({
      kind: "bound",
      candidates: left(excluded).map((id) => candidate(id)),
    });
    this.onReserve = ({ candidates, excluded }) => {
      const decode = rank({ ...address(left(excluded)[0]!), dpRank: this.decodeRank });
      const [first] = candidates;
      if (first === undefined || first.isAggregated) return { kind: "local", decode };
      return { kind: "remote", prefill: first.worker, decode, connector: first.connector };
    };
    this.onHandle = () => ({ kind: "claimed", presentWithinMs: 28_000 });
  }

  serve(): void {
    const subject = (verb: Parameters<typeof subjectOf>[2]) =>
      subjectOf(this.#model, this.#pool, verb);
    const queue = { queue: "scheduler" };
    if (this.#pool === "prefill") {
      this.#bus.serve(subject("place"), queue, async ({ payload }) => {
        const message = this.#keep(this.places, read(place.decode(payload)), payload);
        return placed.encode(await this.onPlace(message));
      });
    } else {
      this.#bus.serve(subject("reserve"), queue, async ({ payload }) => {
        const message = this.#keep(this.reserves, read(reserve.decode(payload)), payload);
        return reserved.encode(await this.onReserve(message));
      });
      this.#bus.serve(subject("handle"), queue, async ({ payload }) => {
        const message = this.#keep(this.handles, read(handle.decode(payload)), payload);
        return handleAnswer.encode(await this.onHandle(message));
      });
    }
    this.#bus.serve(subject("decisions"), queue, ({ payload }) => {
      this.#keep(this.queries, read(decisionsQuery.decode(payload)), payload);
      return decisionsAnswer.encode({ records: this.records });
    });
    this.#bus.subscribe(subject("outcome"), {}, ({ payload }) => {
      this.#keep(this.outcomes, read(outcome.decode(payload)), payload);
    });
    this.#bus.subscribe(subject("frontend"), {}, ({ payload }) => {
      this.#keep(this.beats, read(frontendBeat.decode(payload)), payload);
    });
  }

  tellFleet(over: Partial<Fleet> = {}): void {
    this.fleet = { ...this.fleet, ...over };
    this.#bus.publish(subjectOf(this.#model, this.#pool, "fleet"), fleet.encode(this.fleet));
  }

  /** Stages of one attempt in the order they came, as words. */
  stages(requestId: string, attempt = 1): string[] {
    return this.outcomes
      .filter((each) => each.requestId === requestId && each.attempt === attempt)
      .map(({ stage }) => {
        if (stage.kind === "moved") return `moved to ${workerKey(stage.prefill)}`;
        if (stage.kind === "prefill-failed")
          return `prefill-failed${stage.workerFault ? " by worker" : ""}`;
        if (stage.kind !== "ended") return stage.kind;
        return `ended ${stage.end}${stage.workerFault ? " by worker" : ""}`;
      });
  }

  #keep<T>(list: T[], message: T, payload: Uint8Array): T {
    this.payloads.push(payload.slice());
    list.push(message);
    return message;
  }
}

type Answer<M> = MessageOf<M> | Promise<MessageOf<M>>;
