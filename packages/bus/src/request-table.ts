import type { BatonError } from "@baton/domain";
import { batonError } from "@baton/domain";
import { fail, type Outcome } from "@baton/kit";
import type { TimerHandle, Timers } from "@baton/ports";

type Answer = Outcome<Uint8Array, BatonError>;

interface OpenRequest {
  readonly subject: string;
  readonly resolve: (answer: Answer) => void;
  readonly timer: TimerHandle;
}

/** Requests without an answer yet. Each is settled exactly once; what comes later is ignored. */
export class RequestTable {
  readonly #open = new Map<number, OpenRequest>();
  readonly #timers: Timers;
  #token = 0;

  constructor(timers: Timers) {
    this.#timers = timers;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Token of the newest request. */
  get token(): number {
    return this.#token;
  }

  /** A new request under the next token; the promise settles by its deadline at the latest. */
  open(subject: string, deadlineMs: number): Promise<Answer> {
    const token = ++this.#token;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const timer = this.#timers.after(deadlineMs, () => {
      this.settle(token, fail(deadlinePassed(subject, deadlineMs)));
    });
    this.#open.set(token, { subject, resolve, timer });
    return promise;
  }

  settle(token: number, answer: Answer): void {
    const request = this.#open.get(token);
    if (request === undefined) return;
    this.#open.delete(token);
    request.timer.cancel();
    request.resolve(answer);
  }

  /** Subject of an open request, for its error text. */
  subjectOf(token: number): string {
    return this.#open.get(token)?.subject ?? "";
  }

  /** Fails the open requests on `subject`, or all. */
  failAll(subject: string | null, errorOf: (subject: string) => BatonError): void {
    for (const [token, request] of this.#open) {
      if (subject !== null && request.subject !== subject) continue;
      this.settle(token, fail(errorOf(request.subject)));
    }
  }
}

export function deadlinePassed(subject: string, deadlineMs: number): BatonError {
  return batonError("BATON_BUS_DEADLINE", `no answer on ${subject} within ${deadlineMs} ms`);
}
