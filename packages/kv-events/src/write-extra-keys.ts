import type { KvEvent } from "@baton/domain";
import { hashCount, invariant } from "@baton/kit";
import type { MsgpackWriter } from "./msgpack-writer.ts";

type StoredEvent = Extract<KvEvent, { kind: "stored" }>;

/** The list that `readExtraKeys` reads: LoRA name, multimodal items, salt of block 0, digests. */
export function writeExtraKeys(writer: MsgpackWriter, event: StoredEvent): void {
  const blockCount = hashCount(event.engineHashes);
  invariant(
    event.extraKeys === null || event.extraKeys.length === blockCount,
    "extra keys come one per block",
  );
  writer.arrayHeader(blockCount);
  for (let block = 0; block < blockCount; block++) {
    const isRoot = block === 0 && event.parentEngineHash === null;
    const keys = parseKeys(event.extraKeys?.[block] ?? null);
    const firstDigest = keys.findIndex(isDigest);
    const items: unknown[] = event.loraName === null ? [] : [event.loraName];
    items.push(...(firstDigest < 0 ? keys : keys.slice(0, firstDigest)));
    if (isRoot && event.cacheSalt !== null) items.push(event.cacheSalt);
    if (firstDigest >= 0) items.push(...keys.slice(firstDigest));
    if (items.length === 0) writer.nil();
    else writeList(writer, items);
  }
}

function parseKeys(text: string | null): unknown[] {
  if (text === null) return [];
  const keys: unknown = JSON.parse(text);
  invariant(Array.isArray(keys), `extra keys are a JSON array, got ${text}`);
  return keys;
}

function writeList(writer: MsgpackWriter, items: readonly unknown[]): void {
  writer.arrayHeader(items.length);
  for (const item of items) writeItem(writer, item);
}

function writeItem(writer: MsgpackWriter, item: unknown): void {
  if (typeof item === "string") writer.text(item);
  else if (typeof item === "number" && Number.isInteger(item)) writer.integer(item);
  else if (Array.isArray(item)) writeList(writer, item);
  else if (isDigest(item)) writer.binary(bytesOfHex(item.bytes));
  else invariant(false, `an extra key is a text, an identifier with offset or a digest: ${item}`);
}

function isDigest(item: unknown): item is { bytes: string } {
  return typeof item === "object" && item !== null && "bytes" in item;
}

function bytesOfHex(hex: string): Uint8Array {
  const bytes = new Uint8Array(hex.length / 2);
  for (let index = 0; index < bytes.length; index++) {
    bytes[index] = Number.parseInt(hex.slice(2 * index, 2 * index + 2), 16);
  }
  return bytes;
}
