import { invariant } from "@baton/kit";

export interface Transfer {
  /** Request id and attempt. */
  readonly key: string;
  /** Worker ids at both ends. */
  readonly from: string;
  readonly to: string;
  readonly bytes: number;
}

/**
 * Transfers that are promised or under way, by the links that they use: the sender's egress and the
 * receiver's ingress. At rest every sum is exactly zero.
 */
export class TransferLedger {
  readonly #byKey = new Map<string, Transfer>();
  readonly #egressBytes = new Map<string, number>();
  readonly #ingressBytes = new Map<string, number>();

  get size(): number {
    return this.#byKey.size;
  }

  reserve(transfer: Transfer): void {
    invariant(!this.#byKey.has(transfer.key), `transfer ${transfer.key} is reserved twice`);
    invariant(transfer.bytes >= 0, "a transfer has no negative size");
    this.#byKey.set(transfer.key, transfer);
    change(this.#egressBytes, transfer.from, transfer.bytes);
    change(this.#ingressBytes, transfer.to, transfer.bytes);
  }

  /** Undefined when it was released before. */
  release(key: string): Transfer | undefined {
    const transfer = this.#byKey.get(key);
    if (transfer === undefined) return undefined;
    this.#byKey.delete(key);
    change(this.#egressBytes, transfer.from, -transfer.bytes);
    change(this.#ingressBytes, transfer.to, -transfer.bytes);
    return transfer;
  }

  egressBytes(workerId: string): number {
    return this.#egressBytes.get(workerId) ?? 0;
  }

  ingressBytes(workerId: string): number {
    return this.#ingressBytes.get(workerId) ?? 0;
  }

  /**
   * When one more transfer would be through: all bytes before it on the fuller of its two links,
   * and its own, at the link's rate.
   */
  finishMs(transfer: Omit<Transfer, "key">, linkBytesPerSecond: number): number {
    const queued = Math.max(this.egressBytes(transfer.from), this.ingressBytes(transfer.to));
    return ((queued + transfer.bytes) / linkBytesPerSecond) * 1_000;
  }
}

function change(sums: Map<string, number>, key: string, byBytes: number): void {
  const sum = (sums.get(key) ?? 0) + byBytes;
  if (sum === 0) sums.delete(key);
  else sums.set(key, sum);
}
