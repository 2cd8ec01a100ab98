import { connect, type Socket } from "node:net";
import { fail, type Outcome, ok } from "@baton/kit";
import {
  bytesToWords,
  encodeFrame,
  FrameReader,
  frameKinds,
  type PeerFacts,
  wordsToBytes,
} from "./frames.ts";

/** One connection to another engine's side channel. */
export class Peer {
  readonly #socket: Socket;
  readonly #reader = new FrameReader();
  readonly #waiting = new Map<number, (payload: Buffer | null) => void>();
  #nextTag = 1;
  #isOpen = true;
  #onClose: () => void = () => {};
  /** Null until `greet` has answered. */
  facts: PeerFacts | null = null;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.#closed());
    socket.on("data", (bytes: Buffer) => {
      const frames = this.#reader.push(bytes);
      if (frames === null) socket.destroy();
      for (const { tag, payload } of frames ?? []) this.#settle(tag, payload);
    });
  }

  /** Connects and learns the peer's facts. Fails with a reason, within `timeoutMs`. */
  static open(
    address: { readonly host: string; readonly port: number },
    timeoutMs: number,
  ): Promise<Outcome<Peer, string>> {
    return new Promise((resolve) => {
      const socket = connect(address.port, address.host);
      const timer = setTimeout(() => {
        socket.destroy();
        resolve(fail("no answer from the side channel"));
      }, timeoutMs);
      const refuse = (): void => {
        clearTimeout(timer);
        resolve(fail("the side channel cannot be reached"));
      };
      socket.once("error", refuse);
      socket.once("connect", () => {
        const peer = new Peer(socket);
        void peer.#ask(frameKinds.hello, Buffer.alloc(0)).then((payload) => {
          if (payload === null) return refuse();
          clearTimeout(timer);
          peer.facts = JSON.parse(payload.toString()) as PeerFacts;
          resolve(ok(peer));
        });
      });
    });
  }

  /** Called once, at once when the connection is gone already. */
  onClose(listener: () => void): void {
    this.#onClose = listener;
    if (!this.#isOpen) listener();
  }

  /** Null: the connection broke, or the peer refused the ids. */
  async read(blockIds: readonly number[]): Promise<Uint32Array | null> {
    const payload = await this.#ask(frameKinds.read, wordsToBytes(blockIds));
    return payload === null ? null : bytesToWords(payload);
  }

  done(requestId: string): void {
    if (this.#isOpen) this.#socket.write(encodeFrame(frameKinds.done, 0, Buffer.from(requestId)));
  }

  heartbeat(requestIds: readonly string[]): void {
    if (!this.#isOpen) return;
    this.#socket.write(encodeFrame(frameKinds.heartbeat, 0, Buffer.from(requestIds.join("\n"))));
  }

  close(): void {
    this.#socket.destroy();
  }

  #ask(
    kind: typeof frameKinds.hello | typeof frameKinds.read,
    payload: Buffer,
  ): Promise<Buffer | null> {
    if (!this.#isOpen) return Promise.resolve(null);
    const tag = this.#nextTag++;
    return new Promise((resolve) => {
      this.#waiting.set(tag, resolve);
      this.#socket.write(encodeFrame(kind, tag, payload));
    });
  }

  #settle(tag: number, payload: Buffer | null): void {
    this.#waiting.get(tag)?.(payload);
    this.#waiting.delete(tag);
  }

  #closed(): void {
    this.#isOpen = false;
    for (const tag of [...this.#waiting.keys()]) this.#settle(tag, null);
    this.#onClose();
  }
}
