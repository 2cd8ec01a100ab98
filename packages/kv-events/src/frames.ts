import { fail, type Outcome, ok } from "@baton/kit";

export interface LiveMessage {
  /** Without metadata. */
  readonly topic: string;
  /** Of newer SGLang, from the topic frame; another one means another life of the engine. */
  readonly epoch: string | null;
  readonly sequence: bigint;
  readonly payload: Uint8Array;
}

export type ReplayMessage =
  | { readonly kind: "batch"; readonly sequence: bigint; readonly payload: Uint8Array }
  | { readonly kind: "end" };

export type FramesFault = "frame_count" | "sequence_length";

/**
 * Shape of replay answers. `topic`: vLLM from 0.25, SGLang, TensorRT-LLM. `plain`: older vLLM,
 * without a topic frame.
 */
export type ReplayForm = "topic" | "plain";

const empty = new Uint8Array(0);
const endSequence = 0xffff_ffff_ffff_ffffn;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** `[topic, sequence (8 bytes, big-endian), payload]` of a PUB socket. Payload is a view. */
export function parseLiveFrames(frames: readonly Uint8Array[]): Outcome<LiveMessage, FramesFault> {
  if (frames.length !== 3) return fail("frame_count");
  const sequence = readSequence(frames[1]!);
  if (sequence === null) return fail("sequence_length");
  // SGLang appends `\0key=value` parts, so a topic is never compared whole.
  const parts = frames[0]!.length === 0 ? [""] : decoder.decode(frames[0]!).split("\0");
  const epochKey = "sgl-kv-epoch=";
  const epoch = parts.find((part, index) => index > 0 && part.startsWith(epochKey));
  return ok({
    topic: parts[0]!,
    epoch: epoch?.slice(epochKey.length) ?? null,
    sequence,
    payload: frames[2]!,
  });
}

export function liveFrames(topic: string, sequence: bigint, payload: Uint8Array): Uint8Array[] {
  return [encoder.encode(topic), sequenceBytes(sequence), payload];
}

/** What a DEALER sends to ask for all batches from `from` on. */
export function replayRequestFrames(from: bigint): Uint8Array[] {
  return [empty, sequenceBytes(from)];
}

/**
 * What a ROUTER receives: `[identity, empty, start]`, the start in 1 to 8 bytes as engines accept
 * it. Null for anything else, which engines leave unanswered.
 */
export function parseReplayRequest(
  frames: readonly Uint8Array[],
): { readonly identity: Uint8Array; readonly from: bigint } | null {
  const start = frames[2];
  if (frames.length !== 3 || start === undefined) return null;
  if (start.length === 0 || start.length > 8) return null;
  return { identity: frames[0]!, from: bigEndian(start) };
}

/** Of either form, as a DEALER receives it; read from the end, where both are alike. */
export function parseReplayFrames(
  frames: readonly Uint8Array[],
): Outcome<ReplayMessage, FramesFault> {
  const first = frames[0]?.length === 0 ? 1 : 0;
  const count = frames.length - first;
  if (count < 2 || count > 3) return fail("frame_count");
  const sequence = readSequence(frames.at(-2)!);
  if (sequence === null) return fail("sequence_length");
  const payload = frames.at(-1)!;
  if (payload.length === 0 || sequence === endSequence) return ok({ kind: "end" });
  return ok({ kind: "batch", sequence, payload });
}

/** One replayed batch, without the identity frame that a ROUTER puts before it. */
export function replayFrames(
  form: ReplayForm,
  topic: string,
  sequence: bigint,
  payload: Uint8Array,
): Uint8Array[] {
  const tail = [sequenceBytes(sequence), payload];
  return form === "topic" ? [empty, encoder.encode(topic), ...tail] : [empty, ...tail];
}

export function replayEndFrames(form: ReplayForm): Uint8Array[] {
  return replayFrames(form, "", endSequence, empty);
}

function readSequence(bytes: Uint8Array): bigint | null {
  return bytes.length === 8 ? bigEndian(bytes) : null;
}

function bigEndian(bytes: Uint8Array): bigint {
  let high = 0;
  let low = 0;
  for (const byte of bytes) {
    high = ((high << 8) | (low >>> 24)) >>> 0;
    low = ((low << 8) | byte) >>> 0;
  }
  return (BigInt(high) << 32n) | BigInt(low);
}

function sequenceBytes(sequence: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, sequence);
  return bytes;
}
