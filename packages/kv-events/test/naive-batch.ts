import type { KvBatch, KvEvent } from "@baton/domain";
import { hashFromBigInt } from "@baton/kit";

/**
 * The contract once more, slow and plain, over a decoded document: what `@msgpack/msgpack` returns,
 * or a recording's JSON, where integers beyond 2^53 are decimal texts and bytes are `{hex}`.
 */
export function naiveBatch(document: unknown): KvBatch {
  const [ts, events, rank] = Array.isArray(document) ? document : batchOfMap(document as Fields);
  const skipped: Record<string, number> = {};
  const good: KvEvent[] = [];
  for (const event of events as unknown[]) {
    const read = naiveEvent(Array.isArray(event) ? namedFields(event) : (event as Fields));
    if (typeof read === "string") skipped[read] = (skipped[read] ?? 0) + 1;
    else good.push(read);
  }
  const dpRank = rank === null || rank === undefined ? null : Number(rank);
  return { engineTimeS: Number(ts), dpRank, events: good, skipped };
}

type Fields = Readonly<Record<string, unknown>>;

function batchOfMap(fields: Fields): unknown[] {
  return [fields["ts"], fields["events"], fields["data_parallel_rank"]];
}

const names: Readonly<Record<string, readonly string[]>> = {
  BlockStored: [
    ...["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium"],
    ...["lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"],
  ],
  BlockRemoved: ["block_hashes", "medium", "group_idx"],
};

function namedFields(event: readonly unknown[]): Fields {
  const fields: Record<string, unknown> = { type: event[0] };
  (names[String(event[0])] ?? []).forEach((name, index) => {
    fields[name] = event[index + 1];
  });
  return fields;
}

function naiveEvent(fields: Fields): KvEvent | string {
  if (fields["type"] === "AllBlocksCleared") return { kind: "cleared" };
  const hashes = (fields["block_hashes"] as unknown[]).map(naiveHash);
  const engineHashes = hashFromBigInt(...hashes);
  const medium = (fields["medium"] as string | undefined) ?? null;
  const group = fields["group_idx"] ?? null;
  const groupIndex = group === null ? null : Number(group);
  if (fields["type"] === "BlockRemoved")
    return { kind: "removed", engineHashes, medium, groupIndex };
  const size = Number(fields["block_size"]);
  let tokens = ((fields["token_ids"] as unknown[] | null) ?? []).map((token) =>
    Number(Array.isArray(token) ? token[0] : token),
  );
  const specKind = (fields["kv_cache_spec_kind"] as string | undefined) ?? null;
  if (medium === "cpu" && hashes.length === 1 && tokens.length === size + 1) {
    tokens = tokens.slice(0, -1);
  }
  if (tokens.length > 0 && tokens.length !== hashes.length * size) {
    return specKind === "sliding_window" ? "masked_blocks" : "token_count";
  }
  const parent = fields["parent_block_hash"] ?? null;
  const loraName = (fields["lora_name"] as string | undefined) ?? null;
  const keys = naiveKeys(fields["extra_keys"] as unknown[] | undefined, loraName, parent === null);
  return {
    kind: "stored",
    engineHashes,
    parentEngineHash: parent === null ? null : hashFromBigInt(naiveHash(parent)),
    tokenIds: Uint32Array.from(tokens),
    blockSizeTokens: tokens.length === 0 ? 0 : size,
    medium,
    loraName,
    cacheSalt: (fields["cache_salt"] as string | undefined) ?? keys.cacheSalt,
    extraKeys: keys.extraKeys,
    groupIndex,
    specKind,
  };
}

function naiveKeys(
  lists: readonly unknown[] | null | undefined,
  loraName: string | null,
  startsAtRoot: boolean,
): { cacheSalt: string | null; extraKeys: (string | null)[] | null } {
  let cacheSalt: string | null = null;
  const texts = (lists ?? []).map((list, block) => {
    const items = [...((list as unknown[] | null) ?? [])];
    if (loraName !== null && items[0] === loraName) items.shift();
    const strings = items.filter((item) => typeof item === "string");
    if (block === 0 && startsAtRoot && strings.length === 1) {
      cacheSalt = strings[0] as string;
      items.splice(items.indexOf(strings[0]), 1);
    }
    return items.length === 0 ? null : JSON.stringify(items.map(naiveKey));
  });
  return { cacheSalt, extraKeys: texts.some((text) => text !== null) ? texts : null };
}

function naiveKey(item: unknown): unknown {
  if (item instanceof Uint8Array) return { bytes: Buffer.from(item).toString("hex") };
  return Array.isArray(item) ? item.map((part) => naiveKey(part)) : item;
}

function naiveHash(value: unknown): bigint {
  const bytes = value instanceof Uint8Array ? Buffer.from(value).toString("hex") : hexOf(value);
  if (bytes !== null) return BigInt(`0x${bytes.slice(-16)}`);
  return BigInt.asUintN(64, BigInt(value as number | bigint | string));
}

function hexOf(value: unknown): string | null {
  if (typeof value !== "object" || value === null || !("hex" in value)) return null;
  return String(value.hex);
}
