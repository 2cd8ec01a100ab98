import type { KvEvent } from "@baton/domain";
import { type EventDraft, readEventFields } from "./event-fields.ts";
import { readExtraKeys } from "./extra-keys.ts";
import type { MsgpackReader } from "./msgpack-reader.ts";
import { tierOfMedium } from "./tier-of-medium.ts";

/**
 * Why something of a batch is not in its events: the keys of `KvBatch.skipped`. `unknown_key` and
 * `extra_element` count parts of events that were read all the same; the others count events.
 * `masked_blocks` is no damage: sliding-window and state-space groups announce fewer hashes than
 * positions, and which positions is not on the wire.
 */
export type SkipReason =
  | "unknown_event"
  | "unknown_key"
  | "extra_element"
  | "missing_field"
  | "bad_field"
  | "too_large"
  | "token_count"
  | "masked_blocks"
  | "extra_keys"
  | "bad_rank";

export type SkipCounts = Partial<Record<SkipReason, number>>;

/**
 * Reads the event at the cursor and leaves the cursor behind it, whatever is wrong inside it. Null
 * when it was skipped, with the reason counted, or when the structure broke (`reader.fault`).
 */
export function decodeEvent(reader: MsgpackReader, skipped: SkipCounts): KvEvent | null {
  const start = reader.at;
  if (!reader.isMap() && !reader.isArray()) {
    reader.skip();
    return skip(skipped, "bad_field");
  }
  const draft = readEventFields(reader);
  const fault = reader.fault;
  if (fault === "truncated" || fault === "reserved_byte") return null;
  if (fault !== null || draft.tag === null) {
    reader.fault = null;
    reader.at = start;
    reader.skip();
    if (reader.fault !== null) return null;
    if (fault === null) return skip(skipped, "unknown_event");
    return skip(skipped, fault === "too_large" ? "too_large" : "bad_field");
  }
  count(skipped, "unknown_key", draft.unknownKeys);
  count(skipped, "extra_element", draft.extraElements);
  if (draft.tag === "AllBlocksCleared") return { kind: "cleared" };
  if (draft.engineHashes === null) return skip(skipped, "missing_field");
  if (draft.tag === "BlockStored") return storedEvent(reader, draft, skipped);
  return {
    kind: "removed",
    engineHashes: draft.engineHashes,
    medium: draft.medium,
    groupIndex: draft.groupIndex,
  };
}

function storedEvent(
  reader: MsgpackReader,
  draft: EventDraft,
  skipped: SkipCounts,
): KvEvent | null {
  const engineHashes = draft.engineHashes!;
  const blockCount = engineHashes.length / 2;
  const tokenIds = tokensOfBlocks(draft, blockCount);
  if (tokenIds === null) {
    return skip(skipped, isMaskedKind(draft.specKind) ? "masked_blocks" : "token_count");
  }
  const loraName = draft.loraName ?? nameOfLoraId(draft.loraId);
  let cacheSalt = draft.cacheSalt;
  let extraKeys: readonly (string | null)[] | null = null;
  if (draft.extraKeysAt >= 0) {
    const eventEnd = reader.at;
    reader.at = draft.extraKeysAt;
    const keys = readExtraKeys(reader, blockCount, draft.loraName, draft.parent === null);
    reader.at = eventEnd;
    reader.fault = null;
    if (keys === null) return skip(skipped, "extra_keys");
    cacheSalt ??= keys.cacheSalt;
    extraKeys = keys.extraKeys;
  }
  return {
    kind: "stored",
    engineHashes,
    parentEngineHash: draft.parent,
    tokenIds,
    blockSizeTokens: tokenIds.length === 0 ? 0 : draft.blockSizeTokens,
    medium: draft.medium,
    loraName,
    cacheSalt,
    extraKeys,
    groupIndex: draft.groupIndex,
    specKind: draft.specKind,
  };
}

/** Exactly the tokens of the blocks; empty for placeholders; null when the alignment is unknown. */
function tokensOfBlocks(draft: EventDraft, blockCount: number): Uint32Array | null {
  const tokenIds = draft.tokenIds;
  if (tokenIds === null || tokenIds.length === 0) return tokenIds ?? new Uint32Array(0);
  const size = draft.blockSizeTokens;
  if (tokenIds.length === blockCount * size) return tokenIds;
  // LMCache sends one event per chunk with the chunk's tokens and the first one of the next.
  const isLmcacheChunk =
    blockCount === 1 &&
    size > 1 &&
    tokenIds.length === size + 1 &&
    tierOfMedium(draft.medium) === "host";
  return isLmcacheChunk ? tokenIds.subarray(0, size) : null;
}

/**
 * vLLM below 0.14 sends only a number. As a name it matches no request, and never the base model.
 */
function nameOfLoraId(loraId: number): string | null {
  return loraId === 0 ? null : `lora-id:${loraId}`;
}

function isMaskedKind(specKind: string | null): boolean {
  return specKind !== null && !/^(full|mla|sink_full)_attention$/.test(specKind);
}

function skip(skipped: SkipCounts, reason: SkipReason): null {
  count(skipped, reason, 1);
  return null;
}

export function count(skipped: SkipCounts, reason: SkipReason, by: number): void {
  if (by > 0) skipped[reason] = (skipped[reason] ?? 0) + by;
}
