import type { HashList } from "@baton/kit";
import { readHashes, readParentHash, readTokens } from "./hash-reading.ts";
import { KnownTexts } from "./known-text.ts";
import type { MsgpackReader } from "./msgpack-reader.ts";

export const eventTags = ["BlockStored", "BlockRemoved", "AllBlocksCleared"] as const;
export type EventTag = (typeof eventTags)[number];

/** Positions after the tag in the array form; a prefix of it identifies the engine's version. */
export const storedFields = [
  "block_hashes",
  "parent_block_hash",
  "token_ids",
  "block_size",
  "lora_id",
  "medium",
  "lora_name",
  "extra_keys",
  "group_idx",
  "kv_cache_spec_kind",
  "kv_cache_spec_sliding_window",
  "locality",
] as const;
export const removedFields = ["block_hashes", "medium", "group_idx", "locality"] as const;

const mapOnlyFields = ["cache_salt", "session_id", "ownership"] as const;
export type EventField = (typeof storedFields)[number] | (typeof mapOnlyFields)[number];

const tagTexts = new KnownTexts<EventTag>(eventTags);
const keyTexts = new KnownTexts<EventField | "type">(["type", ...storedFields, ...mapOnlyFields]);
const valueTexts = new KnownTexts([
  ...["GPU", "CPU", "cpu", "CPU_PINNED", "DISK", "STORAGE", "FS", "OBJ", "EXTERNAL"],
  ...["full_attention", "mla_attention", "sink_full_attention", "sliding_window", "mamba"],
]);

/** One event while it is being read; absent and nil are the same on this wire. */
export interface EventDraft {
  tag: EventTag | null;
  engineHashes: HashList | null;
  parent: HashList | null;
  tokenIds: Uint32Array | null;
  blockSizeTokens: number;
  loraId: number;
  loraName: string | null;
  medium: string | null;
  cacheSalt: string | null;
  /**
   * Where the list of extra keys starts; -1 when absent or all nil. Read last, it needs the rest.
   */
  extraKeysAt: number;
  groupIndex: number | null;
  specKind: string | null;
  unknownKeys: number;
  extraElements: number;
}

/** Reads an event of either form; problems are in `reader.fault` or in a null tag. */
export function readEventFields(reader: MsgpackReader): EventDraft {
  const draft: EventDraft = {
    tag: null,
    engineHashes: null,
    parent: null,
    tokenIds: null,
    blockSizeTokens: 0,
    loraId: 0,
    loraName: null,
    medium: null,
    cacheSalt: null,
    extraKeysAt: -1,
    groupIndex: null,
    specKind: null,
    unknownKeys: 0,
    extraElements: 0,
  };
  if (reader.isMap()) readMap(reader, draft);
  else readArray(reader, draft);
  return draft;
}

function readArray(reader: MsgpackReader, draft: EventDraft): void {
  const count = reader.arrayHeader();
  if (count === 0) return;
  draft.tag = tagTexts.read(reader);
  if (draft.tag === null) return;
  const fields = draft.tag === "BlockStored" ? storedFields : removedFields;
  const known = draft.tag === "AllBlocksCleared" ? 0 : fields.length;
  for (let index = 0; index < count - 1 && reader.fault === null; index++) {
    if (index >= known) {
      reader.skip();
      draft.extraElements += 1;
    } else if (fields[index] === "lora_name" && reader.isMap()) readSglangMetadata(reader, draft);
    else readField(reader, draft, fields[index]!);
  }
}

/** SGLang's array form has a map with the salt at the seventh place, on salted blocks only. */
function readSglangMetadata(reader: MsgpackReader, draft: EventDraft): void {
  const count = reader.mapHeader();
  for (let index = 0; index < count && reader.fault === null; index++) {
    if (keyTexts.read(reader) === "cache_salt") draft.cacheSalt = readOptionalText(reader);
    else reader.skip();
  }
}

function readMap(reader: MsgpackReader, draft: EventDraft): void {
  const count = reader.mapHeader();
  for (let index = 0; index < count && reader.fault === null; index++) {
    const key = keyTexts.read(reader);
    if (key === "type") {
      draft.tag = tagTexts.read(reader);
      if (draft.tag === null) return;
    } else if (key !== null) readField(reader, draft, key);
    else if (reader.fault === null) {
      reader.skip();
      draft.unknownKeys += 1;
    }
  }
}

function readField(reader: MsgpackReader, draft: EventDraft, field: EventField): void {
  switch (field) {
    case "block_hashes":
      draft.engineHashes = readHashes(reader);
      return;
    case "parent_block_hash":
      draft.parent = readParentHash(reader);
      return;
    case "token_ids":
      draft.tokenIds = readTokens(reader);
      return;
    case "block_size":
      draft.blockSizeTokens = reader.takeNil() ? 0 : reader.uint32();
      return;
    case "lora_id":
      if (reader.isInteger()) draft.loraId = reader.number();
      else reader.skip();
      return;
    case "lora_name":
      draft.loraName = readOptionalText(reader);
      return;
    case "medium":
      draft.medium = readOptionalText(reader);
      return;
    case "cache_salt":
      draft.cacheSalt = readOptionalText(reader);
      return;
    case "kv_cache_spec_kind":
      draft.specKind = readOptionalText(reader);
      return;
    case "group_idx":
      draft.groupIndex = reader.takeNil() ? null : reader.uint32();
      return;
    case "extra_keys":
      readExtraKeysPlace(reader, draft);
      return;
    // Known and without use here: they must not count as unknown.
    case "kv_cache_spec_sliding_window":
    case "locality":
    case "ownership":
    case "session_id":
      reader.skip();
  }
}

function readOptionalText(reader: MsgpackReader): string | null {
  if (reader.takeNil()) return null;
  const start = reader.at;
  const known = valueTexts.read(reader);
  if (known !== null || reader.fault !== null) return known;
  reader.at = start;
  return reader.text();
}

/** Most lists are all nil, one byte per block; those end here. */
function readExtraKeysPlace(reader: MsgpackReader, draft: EventDraft): void {
  if (reader.takeNil()) return;
  const start = reader.at;
  const count = reader.arrayHeader();
  let nils = 0;
  while (nils < count && reader.takeNil()) nils += 1;
  if (reader.fault !== null || nils === count) return;
  for (let left = count - nils; left > 0 && reader.fault === null; left--) reader.skip();
  draft.extraKeysAt = start;
}
