/** A frontend that misses three beats, one a second, is gone. */
const silenceMsMax = 3_500;

/** Key of a frontend's process life, the owner of its leases. */
export function ownerOf(frontend: {
  readonly frontendId: string;
  readonly incarnation: string;
}): string {
  return `${frontend.frontendId}@${frontend.incarnation}`;
}

/** Which frontends are alive. A frontend counts from its first message, whatever it is. */
export class FrontendBeats {
  readonly #lastMs = new Map<string, number>();

  get count(): number {
    return this.#lastMs.size;
  }

  heard(owner: string, nowMs: number): void {
    this.#lastMs.set(owner, nowMs);
  }

  left(owner: string): void {
    this.#lastMs.delete(owner);
  }

  /** Nobody could be heard until now: each gets its three beats anew. */
  excuse(nowMs: number): void {
    for (const owner of this.#lastMs.keys()) this.#lastMs.set(owner, nowMs);
  }

  /** Owners that fell silent; each is told once. */
  takeSilent(nowMs: number): string[] {
    const silent = [...this.#lastMs].filter(([, lastMs]) => nowMs - lastMs > silenceMsMax);
    for (const [owner] of silent) this.#lastMs.delete(owner);
    return silent.map(([owner]) => owner);
  }
}
