import type { DecisionRecord } from "@baton/domain";
import { Ring } from "@baton/kit";
import { decisionsAnswer } from "@baton/protocol";

/** As many as a `decisions-answer` of the protocol holds. */
const answerRecordsMax = 10_000;

/** The newest decisions of a scheduler, in memory. */
export class DecisionLog {
  readonly #records: Ring<DecisionRecord>;

  constructor(countMax: number) {
    this.#records = new Ring(countMax);
  }

  add(record: DecisionRecord): void {
    this.#records.push(record);
  }

  /** Newest first; `requestId` null takes all. */
  find(query: { readonly requestId: string | null; readonly limit: number }): DecisionRecord[] {
    const found: DecisionRecord[] = [];
    for (const record of this.#records.newestFirst()) {
      if (found.length >= query.limit) break;
      if (query.requestId === null || record.requestId === query.requestId) found.push(record);
    }
    return found;
  }

  /** The same as a bus answer; what does not fit is left off at the old end. */
  answer(
    query: { readonly requestId: string | null; readonly limit: number },
    bytesMax: number,
  ): Uint8Array {
    let records = this.find({ ...query, limit: Math.min(query.limit, answerRecordsMax) });
    for (;;) {
      const payload = decisionsAnswer.encode({ records });
      if (payload.length <= bytesMax || records.length === 0) return payload;
      records = records.slice(0, Math.floor(records.length / 2));
    }
  }
}
