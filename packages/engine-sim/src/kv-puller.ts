import type { EngineRuntime } from "./engine-runtime.ts";
import type { FoundPeer, Peers } from "./peers.ts";
import type { RemoteKv } from "./remote-kv.ts";

export interface KvPullerOptions {
  readonly runtime: EngineRuntime;
  readonly peers: Peers;
  /** Wall ms; heartbeats go out six times per lease. */
  readonly leaseMs: number;
  /** A real engine ends here, on an assertion. */
  readonly onFatal: (requestId: string, reason: string) => void;
}

/** One decode request's remote KV. `fail` is told once, and only if the request is not abandoned. */
export interface Pull {
  readonly requestId: string;
  readonly remote: RemoteKv;
  readonly fail: (reason: string) => void;
}

interface PullState extends Pull {
  blockIds: readonly number[];
  found: FoundPeer | null;
}

/**
 * The decode side of NIXL's pull, from the moment a request arrives: heartbeats keep the export
 * alive while the request queues; when it has blocks, handshake, timed transfer, read, notice to
 * the prefill engine. What a handle says is believed as far as the real connector believes it.
 */
export class KvPuller {
  readonly #options: KvPullerOptions;
  readonly #pulls = new Map<string, PullState>();
  #heartbeats: NodeJS.Timeout | null = null;

  constructor(options: KvPullerOptions) {
    this.#options = options;
  }

  /** The request is in the engine's queue. */
  begin(pull: Pull): void {
    this.#pulls.set(pull.requestId, { ...pull, blockIds: [], found: null });
    this.#beat([pull.remote]);
    this.#heartbeats ??= setInterval(() => this.#beatAll(), this.#options.leaseMs / 6);
  }

  /** The request has its blocks and needs the contents of the last `blocks` of them. */
  async fetch(requestId: string, blocks: number): Promise<void> {
    const pull = this.#pulls.get(requestId);
    // Without the id of the export a real engine parks the request and never looks at it again.
    if (pull === undefined || pull.remote.requestId === null) return;
    const ids = pull.remote.blockIds;
    if (ids === null || ids.length < blocks) {
      const found = ids === null ? "no block ids" : `${ids.length} block ids`;
      const reason = `${found} in a handle whose prompt needs ${blocks} more blocks`;
      return this.#options.onFatal(requestId, reason);
    }
    pull.blockIds = blocks === 0 ? [] : ids.slice(-blocks);
    const found = await this.#options.peers.find(pull.remote);
    if (!this.#pulls.has(requestId)) return;
    if (!found.ok) return this.#fail(pull, found.error);
    const { facts } = found.value;
    if (pull.blockIds.some((id) => id < 0 || id >= facts.blocks)) {
      return this.#fail(pull, "a block id is out of range");
    }
    pull.found = found.value;
    this.#options.runtime.beginTransfer(requestId);
  }

  /** The bytes have had their time: what the blocks hold now is what arrives. */
  async complete(requestId: string): Promise<void> {
    const pull = this.#pulls.get(requestId);
    if (pull === undefined || pull.found === null) return;
    const contents = await pull.found.peer.read(pull.blockIds);
    if (!this.#pulls.has(requestId)) return;
    if (contents === null) return this.#fail(pull, "the transfer broke");
    this.#end(pull);
    pull.found.peer.done(pull.remote.requestId ?? "");
    this.#options.runtime.deliver(requestId, contents);
  }

  /** The request ends before its KV came: the prefill engine may free the export at once. */
  abandon(requestId: string): void {
    const pull = this.#pulls.get(requestId);
    if (pull === undefined) return;
    this.#end(pull);
    if (pull.remote.requestId === null) {
      this.#options.onFatal(requestId, "KeyError: 'remote_request_id'");
    } else void this.#options.peers.done(pull.remote);
  }

  /** A request with this handle was refused before it reached the queue. */
  refuse(remote: RemoteKv): void {
    void this.#options.peers.done(remote);
  }

  /** Only this request ends. */
  failOne(requestId: string, reason: string): void {
    const pull = this.#pulls.get(requestId);
    if (pull !== undefined) this.#fail(pull, reason);
  }

  close(): void {
    if (this.#heartbeats !== null) clearInterval(this.#heartbeats);
    this.#heartbeats = null;
    this.#pulls.clear();
    this.#options.peers.close();
  }

  #fail(pull: PullState, reason: string): void {
    this.#end(pull);
    pull.fail(reason);
  }

  #end(pull: PullState): void {
    this.#pulls.delete(pull.requestId);
    if (this.#pulls.size > 0 || this.#heartbeats === null) return;
    clearInterval(this.#heartbeats);
    this.#heartbeats = null;
  }

  #beatAll(): void {
    this.#beat([...this.#pulls.values()].map(({ remote }) => remote));
  }

  /** One message per peer. */
  #beat(remotes: readonly RemoteKv[]): void {
    const byPeer = new Map<string, { remote: RemoteKv; ids: string[] }>();
    for (const remote of remotes) {
      if (remote.requestId === null) continue;
      const key = `${remote.host}:${remote.port}`;
      const entry = byPeer.get(key) ?? { remote, ids: [] };
      entry.ids.push(remote.requestId);
      byPeer.set(key, entry);
    }
    for (const { remote, ids } of byPeer.values()) void this.#options.peers.heartbeat(remote, ids);
  }
}
