/**
 * A handle is a capability to pull one prompt's KV once, not data:
 * claimed → pulled | released | fenced. A refused claim never becomes a state.
 */
export type HandleState = "claimed" | "pulled" | "released" | "fenced";

export interface HandleClaim {
  /** Request id and attempt: who may present it. */
  readonly key: string;
  /** `workerKey` of the prefill incarnation that holds the blocks. */
  readonly prefill: string;
  /** The engine's id of the handle; unique with `prefill`. */
  readonly handleId: string;
  /** How long the prefill engine keeps the blocks, from its answer. */
  readonly leaseMs: number;
  /** Age of the prefill answer when the claim is made. */
  readonly ageMs: number;
}

export type ClaimAnswer =
  | { readonly kind: "claimed"; readonly presentWithinMs: number }
  | { readonly kind: "refused"; readonly reason: string };

interface Held {
  readonly key: string;
  readonly prefill: string;
  readonly forgetMs: number;
  state: HandleState;
}

/**
 * Kept back from a lease for clocks, the way to the decode engine and its first heartbeat. A pull
 * after the lease reads other people's blocks with HTTP 200, so lateness must be impossible.
 */
const leaseMarginMs = 2_000;

/** A used handle is remembered this many leases long, so that a late duplicate is still refused. */
const memoryLeases = 4;

/** Every handle of one decode pool. Single use, fenced by incarnation, request, attempt and deadline. */
export class HandleBroker {
  readonly #handles = new Map<string, Held>();
  readonly #byKey = new Map<string, string>();

  /** Handles that are claimed and not yet pulled, released or fenced. */
  get openCount(): number {
    return this.#byKey.size;
  }

  claim(claim: HandleClaim, nowMs: number): ClaimAnswer {
    const id = `${claim.prefill}/${claim.handleId}`;
    const earlier = this.#handles.get(id);
    if (earlier !== undefined) {
      return { kind: "refused", reason: `handle was ${earlier.state} by ${earlier.key} before` };
    }
    if (this.#byKey.has(claim.key)) {
      return { kind: "refused", reason: "this attempt holds another handle" };
    }
    const presentWithinMs = claim.leaseMs - leaseMarginMs - claim.ageMs;
    if (presentWithinMs <= 0) {
      return { kind: "refused", reason: `expires in ${claim.leaseMs - claim.ageMs} ms` };
    }
    const forgetMs = nowMs + claim.leaseMs * memoryLeases;
    this.#handles.set(id, { key: claim.key, prefill: claim.prefill, forgetMs, state: "claimed" });
    this.#byKey.set(claim.key, id);
    return { kind: "claimed", presentWithinMs };
  }

  /** The decode engine gave its first byte: the pull is over. */
  pulled(key: string): void {
    this.#close(key, "pulled");
  }

  /** The attempt ended; whatever it held is used up. Also for attempts without a handle. */
  released(key: string): void {
    this.#close(key, "released");
  }

  /** The prefill incarnation is gone, and its blocks with it. Returns the attempts concerned. */
  fence(prefill: string): string[] {
    const fenced: string[] = [];
    for (const held of this.#handles.values()) {
      if (held.prefill !== prefill || held.state !== "claimed") continue;
      fenced.push(held.key);
    }
    for (const key of fenced) this.#close(key, "fenced");
    return fenced;
  }

  /** Forgets what is long over. A handle still open then is a leak, and is returned by its key. */
  sweep(nowMs: number): string[] {
    const leaked: string[] = [];
    for (const [id, held] of this.#handles) {
      if (held.forgetMs > nowMs) continue;
      if (held.state === "claimed") leaked.push(held.key);
      this.#byKey.delete(held.key);
      this.#handles.delete(id);
    }
    return leaked;
  }

  #close(key: string, state: HandleState): void {
    const id = this.#byKey.get(key);
    if (id === undefined) return;
    this.#byKey.delete(key);
    this.#handles.get(id)!.state = state;
  }
}
