import type { KvEvent } from "@baton/domain";
import { type HashList, hashCount, invariant } from "@baton/kit";
import { MsgpackWriter } from "./msgpack-writer.ts";
import { writeExtraKeys } from "./write-extra-keys.ts";

/** `map`: vLLM from 0.24 (fields as 0.32 has them). `array`: vLLM 0.23, the last with positions. */
export type KvBatchForm = "map" | "array";

export interface KvBatchToEncode {
  /** Engine's wall clock, seconds. */
  readonly engineTimeS: number;
  readonly dpRank: number | null;
  readonly events: readonly KvEvent[];
  readonly form: KvBatchForm;
  /** Engine's number of an adapter, which the deprecated `lora_id` carries. Default: nil. */
  readonly loraIdOf?: (loraName: string) => number | null;
}

type StoredEvent = Extract<KvEvent, { kind: "stored" }>;
type RemovedEvent = Extract<KvEvent, { kind: "removed" }>;
type LoraIdOf = (loraName: string) => number | null;

/**
 * Payload of one message as vLLM writes it, byte for byte: `[ts, events, rank]`. Maps leave a field
 * out when it is absent, if vLLM's has a default (`extra_keys`, `group_idx`, `kv_cache_spec_kind`);
 * arrays have all fields. An event with a spec kind, which all of the GPU cache have, carries
 * `extra_keys` even when all are nil; outer tiers' events carry it only when a block has one.
 *
 * The salt travels in the extra keys of block 0, so that of an event with a parent is not written:
 * vLLM's events do not have it either. Hashes are written unsigned.
 */
export function encodeKvBatch(batch: KvBatchToEncode): Uint8Array {
  const writer = new MsgpackWriter(capacityBytes(batch.events));
  const loraIdOf = batch.loraIdOf ?? (() => null);
  writer.arrayHeader(3);
  writer.float64(batch.engineTimeS);
  writer.arrayHeader(batch.events.length);
  for (const event of batch.events) {
    if (batch.form === "map") writeMapEvent(writer, event, loraIdOf);
    else writeArrayEvent(writer, event, loraIdOf);
  }
  writeIntegerOrNil(writer, batch.dpRank);
  return writer.finish();
}

function writeMapEvent(writer: MsgpackWriter, event: KvEvent, loraIdOf: LoraIdOf): void {
  switch (event.kind) {
    case "stored":
      writeStoredMap(writer, event, loraIdOf);
      return;
    case "removed":
      writer.mapHeader(event.groupIndex === null ? 3 : 4);
      writePair(writer, "type", "BlockRemoved");
      writer.text("block_hashes");
      writeHashes(writer, event.engineHashes);
      writePair(writer, "medium", event.medium);
      if (event.groupIndex !== null) writeIntegerPair(writer, "group_idx", event.groupIndex);
      return;
    case "cleared":
      writer.mapHeader(1);
      writePair(writer, "type", "AllBlocksCleared");
  }
}

function writeStoredMap(writer: MsgpackWriter, event: StoredEvent, loraIdOf: LoraIdOf): void {
  const hasExtraKeys = carriesExtraKeys(event);
  const optional =
    (hasExtraKeys ? 1 : 0) +
    (event.groupIndex === null ? 0 : 1) +
    (event.specKind === null ? 0 : 1);
  writer.mapHeader(8 + optional);
  writePair(writer, "type", "BlockStored");
  writer.text("block_hashes");
  writeHashes(writer, event.engineHashes);
  writer.text("parent_block_hash");
  writeParent(writer, event.parentEngineHash);
  writer.text("token_ids");
  writeTokens(writer, event);
  writeIntegerPair(writer, "block_size", event.blockSizeTokens);
  writeIntegerPair(writer, "lora_id", event.loraName === null ? null : loraIdOf(event.loraName));
  writePair(writer, "medium", event.medium);
  writePair(writer, "lora_name", event.loraName);
  if (hasExtraKeys) {
    writer.text("extra_keys");
    writeExtraKeys(writer, event);
  }
  if (event.groupIndex !== null) writeIntegerPair(writer, "group_idx", event.groupIndex);
  if (event.specKind !== null) writePair(writer, "kv_cache_spec_kind", event.specKind);
}

function writeArrayEvent(writer: MsgpackWriter, event: KvEvent, loraIdOf: LoraIdOf): void {
  switch (event.kind) {
    case "stored":
      writer.arrayHeader(12);
      writer.text("BlockStored");
      writeHashes(writer, event.engineHashes);
      writeParent(writer, event.parentEngineHash);
      writeTokens(writer, event);
      writer.integer(event.blockSizeTokens);
      writeIntegerOrNil(writer, event.loraName === null ? null : loraIdOf(event.loraName));
      writeTextOrNil(writer, event.medium);
      writeTextOrNil(writer, event.loraName);
      if (carriesExtraKeys(event)) writeExtraKeys(writer, event);
      else writer.nil();
      writeIntegerOrNil(writer, event.groupIndex);
      writeTextOrNil(writer, event.specKind);
      writer.nil();
      return;
    case "removed":
      writeRemovedArray(writer, event);
      return;
    case "cleared":
      writer.arrayHeader(1);
      writer.text("AllBlocksCleared");
  }
}

function writeRemovedArray(writer: MsgpackWriter, event: RemovedEvent): void {
  writer.arrayHeader(4);
  writer.text("BlockRemoved");
  writeHashes(writer, event.engineHashes);
  writeTextOrNil(writer, event.medium);
  writeIntegerOrNil(writer, event.groupIndex);
}

function carriesExtraKeys(event: StoredEvent): boolean {
  if (event.engineHashes.length === 0) return false;
  const hasSalt = event.cacheSalt !== null && event.parentEngineHash === null;
  return event.specKind !== null || event.extraKeys !== null || hasSalt;
}

function writeHashes(writer: MsgpackWriter, hashes: HashList): void {
  const count = hashCount(hashes);
  writer.arrayHeader(count);
  for (let index = 0; index < count; index++) writer.hash(hashes, index);
}

function writeParent(writer: MsgpackWriter, parent: HashList | null): void {
  if (parent === null) writer.nil();
  else writer.hash(parent, 0);
}

function writeTokens(writer: MsgpackWriter, event: StoredEvent): void {
  const { tokenIds, blockSizeTokens, engineHashes } = event;
  invariant(
    tokenIds.length === 0 || tokenIds.length === hashCount(engineHashes) * blockSizeTokens,
    "a stored event has the tokens of its blocks",
  );
  writer.arrayHeader(tokenIds.length);
  for (let index = 0; index < tokenIds.length; index++) writer.integer(tokenIds[index]!);
}

function writePair(writer: MsgpackWriter, key: string, value: string | null): void {
  writer.text(key);
  writeTextOrNil(writer, value);
}

function writeIntegerPair(writer: MsgpackWriter, key: string, value: number | null): void {
  writer.text(key);
  writeIntegerOrNil(writer, value);
}

function writeTextOrNil(writer: MsgpackWriter, value: string | null): void {
  if (value === null) writer.nil();
  else writer.text(value);
}

function writeIntegerOrNil(writer: MsgpackWriter, value: number | null): void {
  if (value === null) writer.nil();
  else writer.integer(value);
}

/** Usual size; the writer grows where texts are long. */
function capacityBytes(events: readonly KvEvent[]): number {
  let bytes = 64;
  for (const event of events) {
    bytes += 256;
    if (event.kind === "cleared") continue;
    bytes += 5 * event.engineHashes.length;
    if (event.kind === "stored") bytes += 3 * event.tokenIds.length + event.engineHashes.length;
  }
  return bytes;
}
