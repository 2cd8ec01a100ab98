/**
 * What to do with a message of an event stream. `gap`: the messages from `tracker.next` up to this
 * one are missing. `restart`: the stream went back or another life of the engine speaks, and all
 * that was applied of it is void.
 */
export type SequenceVerdict = "accept" | "duplicate" | "gap" | "restart";

/** Messages whose marks are kept. */
const marksKept = 32;

/**
 * Place in one (worker, rank) event stream, with two watermarks: `next` for what was applied, from
 * either source, and the newest live message, since a replay may run ahead of the live stream and
 * then a live message below `next` is no restart. It decides and does not apply: `advance` moves
 * it. No start is assumed: vLLM and SGLang count from 0, TensorRT-LLM from its wall clock in
 * nanoseconds.
 *
 * A `mark` tells two messages of one number apart (`payloadMark`): after a restart the engine may
 * have come to the same number again.
 */
export class SequenceTracker {
  readonly #marks = new Uint32Array(marksKept);
  #next: bigint | null = null;
  /** Of the messages right before `next`; at most `marksKept`. */
  #markCount = 0;
  #liveNewest: bigint | null = null;
  #liveMark = 0;

  /** The sequence that continues what was applied; null while any may start it. */
  get next(): bigint | null {
    return this.#next;
  }

  /** Newest message of the live stream; null before the first. */
  get liveNewest(): bigint | null {
    return this.#liveNewest;
  }

  /** Live messages beyond `next` were seen: something between is missing. */
  get isBehindLive(): boolean {
    return this.#liveNewest !== null && (this.#next === null || this.#liveNewest >= this.#next);
  }

  /** The message `back` before the newest applied one, or the oldest of known mark after it. */
  known(back: number): { readonly sequence: bigint; readonly mark: number } | null {
    if (this.#next === null || this.#markCount === 0) return null;
    const distance = BigInt(1 + Math.min(back, this.#markCount - 1));
    const sequence = this.#next - distance;
    return { sequence, mark: this.#marks[slotOf(sequence)]! };
  }

  /** A message of the live stream, which one engine life only counts up. */
  live(sequence: bigint, mark: number): SequenceVerdict {
    const newest = this.#liveNewest;
    if (newest !== null && sequence <= newest) {
      return sequence === newest && mark === this.#liveMark ? "duplicate" : "restart";
    }
    this.#liveNewest = sequence;
    this.#liveMark = mark;
    return this.place(sequence, mark);
  }

  /** A message of a replay, or one that was held back. */
  place(sequence: bigint, mark: number): SequenceVerdict {
    const next = this.#next;
    if (next === null || sequence === next) return "accept";
    if (sequence > next) return "gap";
    const isMarkKnown = next - sequence <= BigInt(this.#markCount);
    return isMarkKnown && this.#marks[slotOf(sequence)] !== mark ? "restart" : "duplicate";
  }

  /** This message was applied, or is to be counted as such. */
  advance(sequence: bigint, mark: number): void {
    this.#markCount = sequence === this.#next ? Math.min(this.#markCount + 1, marksKept) : 1;
    this.#marks[slotOf(sequence)] = mark;
    this.#next = sequence + 1n;
  }

  /** The same life, to be read anew from `next`, or from anywhere. */
  rewind(next: bigint | null): void {
    this.#next = next;
    this.#markCount = 0;
  }

  /** The live messages seen were not of this life. */
  forgetLive(): void {
    this.#liveNewest = null;
  }

  /** Another life: nothing known of it. */
  restart(): void {
    this.rewind(null);
    this.forgetLive();
  }
}

function slotOf(sequence: bigint): number {
  return Number(BigInt.asUintN(32, sequence)) % marksKept;
}

/** FNV-1a over length and first 64 bytes, where every layout has the engine's time stamp. */
export function payloadMark(payload: Uint8Array): number {
  let mark = Math.imul(0x811c_9dc5 ^ payload.length, 0x0100_0193);
  const end = Math.min(payload.length, 64);
  for (let at = 0; at < end; at++) mark = Math.imul(mark ^ payload[at]!, 0x0100_0193);
  return mark >>> 0;
}
