import type { BatonError, Pool } from "@baton/domain";
import type { Outcome } from "@baton/kit";
import type { Bus } from "@baton/ports";
import {
  decisionsAnswer,
  decisionsQuery,
  fleet,
  frontendBeat,
  handle,
  handleAnswer,
  type MessageOf,
  type MessageType,
  outcome,
  place,
  placed,
  reserve,
  reserved,
  subjectOf,
} from "@baton/protocol";

type Place = MessageOf<typeof place>;
type Reserve = MessageOf<typeof reserve>;
type Handle = MessageOf<typeof handle>;
type Stage = MessageOf<typeof outcome>["stage"];
type Keyed<T> = Partial<T> & { readonly requestId: string };

const deadlineMs = 60_000;

/** A frontend's half of the protocol, message by message. */
export class FakeFrontend {
  readonly #bus: Bus;
  readonly #model: string;
  readonly identity: { readonly frontendId: string; readonly incarnation: string };
  /** Fleet messages of both pools, in order. */
  readonly fleets: MessageOf<typeof fleet>[] = [];

  constructor(bus: Bus, model: string, frontendId = "f0") {
    this.#bus = bus;
    this.#model = model;
    this.identity = { frontendId, incarnation: "1" };
    for (const pool of ["prefill", "decode"] as const) {
      bus.subscribe(subjectOf(model, pool, "fleet"), {}, ({ payload }) => {
        this.fleets.push(unwrap(fleet.decode(payload)));
      });
    }
  }

  place(over: Keyed<Place>): Promise<MessageOf<typeof placed>> {
    const message = { ...this.#plan(), ...over };
    return this.#ask(subjectOf(this.#model, "prefill", "place"), place, message, placed);
  }

  reserve(over: Keyed<Reserve>): Promise<MessageOf<typeof reserved>> {
    const message = { ...this.#plan(), candidates: [], ...over };
    return this.#ask(subjectOf(this.#model, "decode", "reserve"), reserve, message, reserved);
  }

  handle(
    over: Keyed<Handle> & Pick<Handle, "handleId" | "decode" | "prefill">,
  ): Promise<MessageOf<typeof handleAnswer>> {
    const message = { attempt: 1, connector: "nixl-pull", ageMs: 0, promptTokens: null, ...over };
    return this.#ask(subjectOf(this.#model, "decode", "handle"), handle, message, handleAnswer);
  }

  decisions(
    pool: Pool,
    query: MessageOf<typeof decisionsQuery>,
  ): Promise<MessageOf<typeof decisionsAnswer>> {
    const subject = subjectOf(this.#model, pool, "decisions");
    return this.#ask(subject, decisionsQuery, query, decisionsAnswer);
  }

  /** Bytes as they are, for messages that cannot be read. */
  async askRaw(
    pool: Pool,
    verb: "place" | "reserve" | "handle" | "decisions",
    payload: Uint8Array,
  ): Promise<Uint8Array> {
    const subject = subjectOf(this.#model, pool, verb);
    return unwrap(await this.#bus.request(subject, payload, { deadlineMs }));
  }

  publishRaw(pool: Pool, verb: "outcome" | "frontend", payload: Uint8Array): void {
    this.#bus.publish(subjectOf(this.#model, pool, verb), payload);
  }

  report(requestId: string, stage: Stage, attempt = 1): void {
    const payload = outcome.encode({ requestId, attempt, frontend: this.identity, stage });
    for (const pool of ["prefill", "decode"] as const) this.publishRaw(pool, "outcome", payload);
  }

  /** The attempt's last word. */
  end(requestId: string, over: Partial<Extract<Stage, { kind: "ended" }>> = {}, attempt = 1): void {
    const ended = { kind: "ended", end: "done", workerFault: false, outputTokens: 1 } as const;
    this.report(requestId, { ...ended, reason: "", ...over }, attempt);
  }

  beat(isLeaving = false): void {
    const payload = frontendBeat.encode({ frontend: this.identity, isLeaving, requestsLive: 1 });
    for (const pool of ["prefill", "decode"] as const) this.publishRaw(pool, "frontend", payload);
  }

  #plan() {
    return {
      attempt: 1,
      frontend: this.identity,
      promptTokens: null,
      promptBytes: 4_000,
      hashSets: [],
      maxOutputTokens: 100,
      deadlineMs,
      excluded: [],
    };
  }

  async #ask<Q, A>(
    subject: string,
    question: MessageType<Q>,
    message: Q,
    answer: MessageType<A>,
  ): Promise<A> {
    const reply = await this.#bus.request(subject, question.encode(message), { deadlineMs });
    return unwrap(answer.decode(unwrap(reply)));
  }
}

function unwrap<T>(outcome: Outcome<T, BatonError>): T {
  if (outcome.ok) return outcome.value;
  throw new Error(`${outcome.error.code}: ${outcome.error.message}`);
}
