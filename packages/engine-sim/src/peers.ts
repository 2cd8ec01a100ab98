import { fail, type Outcome, ok } from "@baton/kit";
import type { PeerFacts } from "./frames.ts";
import { Peer } from "./peer.ts";
import type { RemoteKv } from "./remote-kv.ts";

/** An open connection to the engine that a handle names. */
export interface FoundPeer {
  readonly peer: Peer;
  readonly facts: PeerFacts;
}

/**
 * The engines that this one reads from, one connection each. As with NIXL, an engine that was never
 * met costs the whole handshake time-out when it is not there or not the one that the handle names;
 * one that was met and is gone fails at once.
 */
export class Peers {
  readonly #handshakeTimeoutMs: number;
  readonly #open = new Map<string, Promise<Outcome<Peer, string>>>();
  readonly #met = new Set<string>();
  readonly #delays = new Set<NodeJS.Timeout>();

  constructor(handshakeTimeoutMs: number) {
    this.#handshakeTimeoutMs = handshakeTimeoutMs;
  }

  async find(remote: RemoteKv): Promise<Outcome<FoundPeer, string>> {
    const startedMs = performance.now();
    const found = await this.#connection(remote);
    const facts = found.ok ? found.value.facts : null;
    if (found.ok && facts !== null && facts.engineId === remote.engineId) {
      this.#met.add(facts.engineId);
      return ok({ peer: found.value, facts });
    }
    if (!this.#met.has(remote.engineId ?? "")) {
      await this.#delay(this.#handshakeTimeoutMs - (performance.now() - startedMs));
    }
    return found.ok ? fail("the side channel belongs to another engine") : found;
  }

  /** Tells the engine that an export can go. A peer that cannot be reached keeps its lease. */
  async done(remote: RemoteKv): Promise<void> {
    if (remote.requestId === null) return;
    const found = await this.#connection(remote);
    if (found.ok) found.value.done(remote.requestId);
  }

  async heartbeat(remote: RemoteKv, requestIds: readonly string[]): Promise<void> {
    const found = await this.#connection(remote);
    if (found.ok) found.value.heartbeat(requestIds);
  }

  close(): void {
    for (const timer of this.#delays) clearTimeout(timer);
    for (const connection of this.#open.values()) {
      void connection.then((found) => found.ok && found.value.close());
    }
    this.#open.clear();
  }

  #connection({ host, port }: RemoteKv): Promise<Outcome<Peer, string>> {
    if (host === null || port === null) {
      return Promise.resolve(fail("the handle has no address"));
    }
    const key = `${host}:${port}`;
    const known = this.#open.get(key);
    if (known !== undefined) return known;
    const opening = Peer.open({ host, port }, this.#handshakeTimeoutMs).then((found) => {
      if (found.ok) found.value.onClose(() => this.#open.delete(key));
      else this.#open.delete(key);
      return found;
    });
    this.#open.set(key, opening);
    return opening;
  }

  #delay(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(
        () => {
          this.#delays.delete(timer);
          resolve();
        },
        Math.max(0, ms),
      );
      this.#delays.add(timer);
    });
  }
}
