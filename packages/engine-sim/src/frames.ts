/**
 * Frames of the side channel between two simulated engines, little-endian:
 * u32 bytes that follow · u8 kind · u32 tag · payload. An answer repeats kind and tag.
 * - `hello`: empty → JSON `PeerFacts`
 * - `read`: u32 block ids → 16 bytes per block (state before, state after)
 * - `done`: request id → no answer; the export may be freed
 * - `heartbeat`: request ids, one a line → no answer; their leases are extended
 */
export const frameKinds = { hello: 1, read: 2, done: 3, heartbeat: 4 } as const;

export type FrameKind = (typeof frameKinds)[keyof typeof frameKinds];

export interface Frame {
  readonly kind: number;
  readonly tag: number;
  readonly payload: Buffer;
}

/** What a reader learns before it reads. */
export interface PeerFacts {
  readonly engineId: string;
  /** With the null block: ids run from 0 to blocks - 1. */
  readonly blocks: number;
  readonly blockSizeTokens: number;
}

const headerBytes = 9;
const frameBytesMax = 16 * 1024 * 1024;

export function encodeFrame(kind: FrameKind, tag: number, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + payload.length);
  frame.writeUInt32LE(headerBytes - 4 + payload.length, 0);
  frame.writeUInt8(kind, 4);
  frame.writeUInt32LE(tag, 5);
  frame.set(payload, headerBytes);
  return frame;
}

/** Cuts a byte stream into frames. */
export class FrameReader {
  #pending: Buffer = Buffer.alloc(0);

  /** The frames that are whole now; null when the stream is not one of frames. */
  push(bytes: Buffer): readonly Frame[] | null {
    this.#pending = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    const frames: Frame[] = [];
    while (this.#pending.length >= headerBytes) {
      const end = 4 + this.#pending.readUInt32LE(0);
      if (end < headerBytes || end > frameBytesMax) return null;
      if (this.#pending.length < end) break;
      frames.push({
        kind: this.#pending.readUInt8(4),
        tag: this.#pending.readUInt32LE(5),
        payload: this.#pending.subarray(headerBytes, end),
      });
      this.#pending = this.#pending.subarray(end);
    }
    return frames;
  }
}

/** Little-endian words on any machine and at any offset. */
export function wordsToBytes(words: ArrayLike<number>): Buffer {
  const bytes = Buffer.allocUnsafe(words.length * 4);
  for (let at = 0; at < words.length; at++) bytes.writeUInt32LE(words[at]! >>> 0, at * 4);
  return bytes;
}

export function bytesToWords(bytes: Buffer): Uint32Array {
  const words = new Uint32Array(bytes.length >>> 2);
  for (let at = 0; at < words.length; at++) words[at] = bytes.readUInt32LE(at * 4);
  return words;
}
