import type { MsgpackReader } from "./msgpack-reader.ts";

/**
 * What an engine keys a block by besides its tokens, salt and LoRA name: a multimodal identifier
 * with the item's offset from the start of the block (a bare identifier from old vLLM), or a
 * digest.
 */
export type ExtraKey = readonly [identifier: string, offsetTokens: number] | string | Uint8Array;

/**
 * Canonical text of one block's extra keys, the form of `KvEvent.extraKeys`: JSON of the keys in
 * their order, a digest as `{"bytes":"<hex>"}`. Null for no keys. Requests that carry images use
 * the same call, so that both sides hash alike.
 */
export function extraKeysText(keys: readonly ExtraKey[]): string | null {
  if (keys.length === 0) return null;
  const texts = keys.map((key) => (isBytes(key) ? bytesText(key) : JSON.stringify(key)));
  return `[${texts.join(",")}]`;
}

export interface BlockKeys {
  readonly cacheSalt: string | null;
  readonly extraKeys: readonly (string | null)[] | null;
}

interface KeyItem {
  /** Canonical JSON. */
  readonly json: string;
  readonly text: string | null;
  readonly isDigest: boolean;
}

/**
 * Reads `extra_keys`, one entry per block. vLLM's order in an entry: LoRA name, multimodal items,
 * salt (in the block at token 0 only), digest. The names are not tagged, so: the first text is the
 * LoRA name when it equals `loraName`; in block 0 a text that is the only one left, with nothing
 * but digests behind it, is the salt. All else is kept as text of the block: a wrong guess splits a
 * namespace and costs hits, it never joins two.
 *
 * Null when the list cannot be read or has not `blockCount` entries.
 */
export function readExtraKeys(
  reader: MsgpackReader,
  blockCount: number,
  loraName: string | null,
  startsAtRoot: boolean,
): BlockKeys | null {
  if (reader.arrayHeader() !== blockCount) return null;
  let cacheSalt: string | null = null;
  const extraKeys: (string | null)[] = [];
  for (let block = 0; block < blockCount && reader.fault === null; block++) {
    const items = readEntry(reader);
    if (loraName !== null && items[0]?.text === loraName) items.shift();
    const saltIndex = block === 0 && startsAtRoot ? indexOfSalt(items) : -1;
    if (saltIndex >= 0) cacheSalt = items.splice(saltIndex, 1)[0]!.text;
    extraKeys.push(items.length === 0 ? null : `[${items.map((item) => item.json).join(",")}]`);
  }
  if (reader.fault !== null) return null;
  return { cacheSalt, extraKeys: extraKeys.some((keys) => keys !== null) ? extraKeys : null };
}

function readEntry(reader: MsgpackReader): KeyItem[] {
  if (reader.takeNil()) return [];
  const items: KeyItem[] = [];
  const count = reader.arrayHeader();
  for (let index = 0; index < count && reader.fault === null; index++) {
    const isDigest = reader.isBinary();
    const text = reader.isText() ? reader.text() : null;
    items.push({ json: text === null ? readJson(reader) : JSON.stringify(text), text, isDigest });
  }
  return items;
}

function indexOfSalt(items: readonly KeyItem[]): number {
  const index = items.findIndex((item) => item.text !== null);
  const hasOthersBehind = items.slice(index + 1).some((item) => !item.isDigest);
  return hasOthersBehind ? -1 : index;
}

/** Scalars, digests and one level of arrays of scalars: all that engines send here. */
function readJson(reader: MsgpackReader): string {
  if (!reader.isArray()) return readScalarJson(reader);
  const texts: string[] = [];
  const count = reader.arrayHeader();
  for (let index = 0; index < count && reader.fault === null; index++) {
    texts.push(readScalarJson(reader));
  }
  return `[${texts.join(",")}]`;
}

function readScalarJson(reader: MsgpackReader): string {
  if (reader.takeNil()) return "null";
  if (reader.isText()) return JSON.stringify(reader.text());
  if (reader.isBinary()) return bytesText(reader.binary());
  if (!reader.isInteger()) return JSON.stringify(reader.number());
  reader.integer();
  const isNegative = reader.high > 0x7fff_ffff;
  if (isNegative || reader.high < 0x20_0000) {
    const value = (reader.high | 0) * 0x1_0000_0000 + reader.low;
    if (Number.isSafeInteger(value)) return String(value);
  }
  // Beyond 2^53 the digits matter only for telling keys apart.
  return `"0x${hex(reader.high, 8)}${hex(reader.low, 8)}"`;
}

function isBytes(key: ExtraKey): key is Uint8Array {
  return key instanceof Uint8Array;
}

function bytesText(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += hex(byte, 2);
  return `{"bytes":"${text}"}`;
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, "0");
}
