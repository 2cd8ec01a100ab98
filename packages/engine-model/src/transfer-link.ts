interface Transfer {
  readonly id: string;
  /** Set-up ends and bytes begin to flow. */
  readonly startsAtMs: number;
  remainingBytes: number;
}

export interface TransferLinkOptions {
  readonly bytesPerMs: number;
  /** Between a transfer's start and its first byte. */
  readonly setupMs: number;
}

/** What flows in less than this is rounding: a time line of days cannot tell it from zero. */
const slackMs = 1e-3;

/**
 * One engine's way in: transfers that flow at the same time share its bandwidth evenly. Time is an
 * argument and never goes back. Each call is O(transfers under way).
 */
export class TransferLink {
  readonly #options: TransferLinkOptions;
  readonly #transfers: Transfer[] = [];
  #atMs = 0;

  constructor(options: TransferLinkOptions) {
    this.#options = options;
  }

  get underWay(): number {
    return this.#transfers.length;
  }

  start(id: string, bytes: number, nowMs: number): void {
    this.#settle(nowMs);
    const startsAtMs = nowMs + this.#options.setupMs;
    this.#transfers.push({ id, startsAtMs, remainingBytes: bytes });
  }

  cancel(id: string, nowMs: number): void {
    this.#settle(nowMs);
    const index = this.#transfers.findIndex((transfer) => transfer.id === id);
    if (index >= 0) this.#transfers.splice(index, 1);
  }

  /** When something changes next, if nothing is started or cancelled; null when the link is idle. */
  nextAtMs(): number | null {
    let next: number | null = null;
    const share = this.#shareBytesPerMs();
    for (const transfer of this.#transfers) {
      const atMs =
        transfer.startsAtMs > this.#atMs
          ? transfer.startsAtMs
          : this.#atMs + transfer.remainingBytes / share;
      if (next === null || atMs < next) next = atMs;
    }
    return next;
  }

  /** Ids of the transfers that are whole at `nowMs`; they leave the link. */
  finish(nowMs: number): readonly string[] {
    this.#settle(nowMs);
    const done: string[] = [];
    const slackBytes = this.#shareBytesPerMs() * slackMs;
    for (let index = this.#transfers.length - 1; index >= 0; index--) {
      const transfer = this.#transfers[index]!;
      if (transfer.startsAtMs <= nowMs && transfer.remainingBytes <= slackBytes) {
        done.unshift(transfer.id);
        this.#transfers.splice(index, 1);
      }
    }
    return done;
  }

  /** Moves bytes up to `nowMs`; the share changes whenever a transfer's set-up ends. */
  #settle(nowMs: number): void {
    while (this.#atMs < nowMs) {
      let untilMs = nowMs;
      for (const { startsAtMs } of this.#transfers) {
        if (startsAtMs > this.#atMs && startsAtMs < untilMs) untilMs = startsAtMs;
      }
      const moved = this.#shareBytesPerMs() * (untilMs - this.#atMs);
      for (const transfer of this.#transfers) {
        if (transfer.startsAtMs <= this.#atMs) {
          transfer.remainingBytes = Math.max(0, transfer.remainingBytes - moved);
        }
      }
      this.#atMs = untilMs;
    }
  }

  #shareBytesPerMs(): number {
    const flowing = this.#transfers.filter(({ startsAtMs }) => startsAtMs <= this.#atMs).length;
    return this.#options.bytesPerMs / Math.max(1, flowing);
  }
}
