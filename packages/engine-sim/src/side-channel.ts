import { createServer, type Server, type Socket } from "node:net";
import {
  bytesToWords,
  encodeFrame,
  type Frame,
  FrameReader,
  frameKinds,
  type PeerFacts,
  wordsToBytes,
} from "./frames.ts";

export interface SideChannelHandlers {
  readonly facts: PeerFacts;
  /** Contents by block id; every id is in range. */
  readonly read: (blockIds: readonly number[]) => Uint32Array;
  readonly done: (requestId: string) => void;
  readonly heartbeat: (requestIds: readonly string[]) => void;
}

/** Where decode engines read the blocks of this one. */
export class SideChannel {
  readonly #server: Server;
  readonly #handlers: SideChannelHandlers;
  readonly #sockets = new Set<Socket>();

  private constructor(handlers: SideChannelHandlers) {
    this.#handlers = handlers;
    this.#server = createServer((socket) => this.#serve(socket));
  }

  /** Rejects when the port is taken. */
  static listen(
    address: { readonly host: string; readonly port: number },
    handlers: SideChannelHandlers,
  ): Promise<SideChannel> {
    const channel = new SideChannel(handlers);
    return new Promise((resolve, reject) => {
      channel.#server.once("error", reject);
      channel.#server.listen(address.port, address.host, () => resolve(channel));
    });
  }

  get port(): number {
    const address = this.#server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #serve(socket: Socket): void {
    const reader = new FrameReader();
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("close", () => this.#sockets.delete(socket));
    // A peer that dies is its own problem: leases free what it had asked for.
    socket.on("error", () => socket.destroy());
    socket.on("data", (bytes: Buffer) => {
      const frames = reader.push(bytes);
      if (frames === null || !frames.every((frame) => this.#answer(socket, frame)))
        socket.destroy();
    });
  }

  /** False: not a frame that a peer may send. */
  #answer(socket: Socket, { kind, tag, payload }: Frame): boolean {
    const { facts, read, done, heartbeat } = this.#handlers;
    switch (kind) {
      case frameKinds.hello:
        socket.write(encodeFrame(kind, tag, Buffer.from(JSON.stringify(facts))));
        return true;
      case frameKinds.read: {
        const blockIds = Array.from(bytesToWords(payload));
        if (blockIds.some((id) => id >= facts.blocks)) return false;
        socket.write(encodeFrame(kind, tag, wordsToBytes(read(blockIds))));
        return true;
      }
      case frameKinds.done:
        done(payload.toString());
        return true;
      case frameKinds.heartbeat:
        heartbeat(payload.toString().split("\n"));
        return true;
      default:
        return false;
    }
  }
}
