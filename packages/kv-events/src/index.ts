export type { SkipReason } from "./decode-event.ts";
export { decodeKvBatch, type KvPayloadFault } from "./decode-kv-batch.ts";
export { encodeKvBatch, type KvBatchForm, type KvBatchToEncode } from "./encode-kv-batch.ts";
export { type ExtraKey, extraKeysText } from "./extra-keys.ts";
export {
  type FramesFault,
  type LiveMessage,
  liveFrames,
  parseLiveFrames,
  parseReplayFrames,
  parseReplayRequest,
  type ReplayForm,
  type ReplayMessage,
  replayEndFrames,
  replayFrames,
  replayRequestFrames,
} from "./frames.ts";
export {
  eventsPerBatchMax,
  hashesPerEventMax,
  payloadBytesMax,
  tokensPerEventMax,
} from "./limits.ts";
export { payloadMark, SequenceTracker, type SequenceVerdict } from "./sequence-tracker.ts";
export { tierOfMedium } from "./tier-of-medium.ts";
