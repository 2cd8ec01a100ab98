import type { HashList } from "@baton/kit";

const encoder = new TextEncoder();

/** Growing buffer of msgpack; integers in their shortest form, as engines write them. */
export class MsgpackWriter {
  #bytes: Uint8Array<ArrayBuffer>;
  #view: DataView;
  #at = 0;

  constructor(capacityBytes: number) {
    this.#bytes = new Uint8Array(Math.max(64, capacityBytes));
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** What was written, as a copy of its own. */
  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#at);
  }

  nil(): void {
    this.#byte(0xc0);
  }

  float64(value: number): void {
    this.#room(9);
    this.#bytes[this.#at] = 0xcb;
    this.#view.setFloat64(this.#at + 1, value);
    this.#at += 9;
  }

  arrayHeader(count: number): void {
    this.#header(count, 0x90, 0x0f, 0xdc);
  }

  mapHeader(count: number): void {
    this.#header(count, 0x80, 0x0f, 0xde);
  }

  text(value: string): void {
    const utf8 = encoder.encode(value);
    if (utf8.length <= 0x1f) this.#byte(0xa0 | utf8.length);
    else if (utf8.length <= 0xff) this.#tagged(0xd9, 1, utf8.length);
    else if (utf8.length <= 0xffff) this.#tagged(0xda, 2, utf8.length);
    else this.#tagged(0xdb, 4, utf8.length);
    this.raw(utf8);
  }

  binary(value: Uint8Array): void {
    if (value.length <= 0xff) this.#tagged(0xc4, 1, value.length);
    else if (value.length <= 0xffff) this.#tagged(0xc5, 2, value.length);
    else this.#tagged(0xc6, 4, value.length);
    this.raw(value);
  }

  /** Bytes that are msgpack already. */
  raw(bytes: Uint8Array): void {
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  /** From -2^31 to 2^32 - 1. */
  integer(value: number): void {
    if (value >= 0) {
      if (value <= 0x7f) this.#byte(value);
      else if (value <= 0xff) this.#tagged(0xcc, 1, value);
      else if (value <= 0xffff) this.#tagged(0xcd, 2, value);
      else this.#tagged(0xce, 4, value);
    } else if (value >= -0x20) this.#byte(value & 0xff);
    else if (value >= -0x80) this.#tagged(0xd0, 1, value);
    else if (value >= -0x8000) this.#tagged(0xd1, 2, value);
    else this.#tagged(0xd2, 4, value);
  }

  /** Unsigned 64 bits. */
  hash(list: HashList, index: number): void {
    const low = list[2 * index]!;
    const high = list[2 * index + 1]!;
    if (high === 0) {
      this.integer(low);
      return;
    }
    this.#room(9);
    this.#bytes[this.#at] = 0xcf;
    this.#view.setUint32(this.#at + 1, high);
    this.#view.setUint32(this.#at + 5, low);
    this.#at += 9;
  }

  #header(count: number, short: number, shortMax: number, wide: number): void {
    if (count <= shortMax) this.#byte(short | count);
    else if (count <= 0xffff) this.#tagged(wide, 2, count);
    else this.#tagged(wide + 1, 4, count);
  }

  #byte(value: number): void {
    this.#room(1);
    this.#bytes[this.#at] = value;
    this.#at += 1;
  }

  /** The setters wrap, so signed and unsigned values take the same path. */
  #tagged(tag: number, width: 1 | 2 | 4, value: number): void {
    this.#room(1 + width);
    const at = this.#at + 1;
    this.#bytes[at - 1] = tag;
    if (width === 1) this.#view.setUint8(at, value);
    else if (width === 2) this.#view.setUint16(at, value);
    else this.#view.setUint32(at, value);
    this.#at = at + width;
  }

  #room(length: number): void {
    if (this.#at + length <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(this.#at + length, 2 * this.#bytes.length));
    grown.set(this.#bytes.subarray(0, this.#at));
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }
}
