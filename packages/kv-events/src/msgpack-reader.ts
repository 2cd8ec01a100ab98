/**
 * `truncated` and `reserved_byte` mean that the structure itself cannot be followed; `type` and
 * `too_large` concern one value, which `skip` can still step over.
 */
export type ReadFault = "truncated" | "reserved_byte" | "type" | "too_large";

const text = new TextDecoder();

/**
 * Cursor over one msgpack document. Nothing throws: the first problem is kept in `fault`, reads
 * after it return zero values, and the caller looks once per event. Reads allocate only what they
 * return, after checking the announced length against the bytes that are left.
 */
export class MsgpackReader {
  readonly bytes: Uint8Array;
  readonly end: number;
  at = 0;
  fault: ReadFault | null = null;
  /** The 64-bit integer last read by `integer`, two's complement, as unsigned 32-bit words. */
  low = 0;
  high = 0;
  readonly #view: DataView;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    this.end = bytes.length;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** Next byte without moving; -1 at the end. */
  peek(): number {
    return this.at < this.end ? this.bytes[this.at]! : -1;
  }

  /** Steps over nil and says whether there was one. */
  takeNil(): boolean {
    if (this.peek() !== 0xc0) return false;
    this.at += 1;
    return true;
  }

  isArray(): boolean {
    const byte = this.peek();
    return (byte >= 0x90 && byte <= 0x9f) || byte === 0xdc || byte === 0xdd;
  }

  isMap(): boolean {
    const byte = this.peek();
    return (byte >= 0x80 && byte <= 0x8f) || byte === 0xde || byte === 0xdf;
  }

  isText(): boolean {
    const byte = this.peek();
    return (byte >= 0xa0 && byte <= 0xbf) || (byte >= 0xd9 && byte <= 0xdb);
  }

  isBinary(): boolean {
    const byte = this.peek();
    return byte >= 0xc4 && byte <= 0xc6;
  }

  isInteger(): boolean {
    const byte = this.peek();
    return (byte >= 0 && byte <= 0x7f) || byte >= 0xe0 || (byte >= 0xcc && byte <= 0xd3);
  }

  /** Number of elements; they follow. */
  arrayHeader(): number {
    return this.#header(0x90, 0x9f, 0xdc, 0xdd);
  }

  /** Number of pairs; keys and values follow in turn. */
  mapHeader(): number {
    return this.#header(0x80, 0x8f, 0xde, 0xdf);
  }

  /** Byte length; that many bytes of UTF-8 follow at `at`. */
  textHeader(): number {
    return this.#header(0xa0, 0xbf, 0xd9, 0xdb);
  }

  /** Byte length; that many bytes follow at `at`. */
  binaryHeader(): number {
    const byte = this.peek();
    return byte >= 0xc4 && byte <= 0xc6 ? this.#wideHeader(1 << (byte - 0xc4)) : this.#refuse();
  }

  /** Bytes that are not UTF-8 become U+FFFD. */
  text(): string {
    const length = this.textHeader();
    if (!this.#need(length)) return "";
    const start = this.at;
    this.at += length;
    return text.decode(this.bytes.subarray(start, this.at));
  }

  /** A view, not a copy. */
  binary(): Uint8Array {
    const length = this.binaryHeader();
    if (!this.#need(length)) return this.bytes.subarray(0, 0);
    const start = this.at;
    this.at += length;
    return this.bytes.subarray(start, this.at);
  }

  /** Any integer form, signed or not, into `low` and `high`. */
  integer(): boolean {
    const byte = this.peek();
    if (byte >= 0 && byte <= 0x7f) return this.#integer(1, byte, 0);
    if (byte >= 0xe0) return this.#integer(1, byte - 0x100, -1);
    if (byte < 0xcc || byte > 0xd3) {
      this.#refuse();
      return false;
    }
    const isSigned = byte >= 0xd0;
    const width = 1 << ((byte - 0xcc) & 3);
    if (!this.#need(1 + width)) return false;
    const at = this.at + 1;
    const view = this.#view;
    if (width === 8) return this.#integer(9, view.getUint32(at + 4), view.getUint32(at));
    const value =
      width === 4
        ? view.getInt32(at)
        : width === 2
          ? isSigned
            ? view.getInt16(at)
            : view.getUint16(at)
          : isSigned
            ? view.getInt8(at)
            : view.getUint8(at);
    return this.#integer(1 + width, value, isSigned && value < 0 ? -1 : 0);
  }

  /** An integer from 0 to 2^32 - 1. */
  uint32(): number {
    if (!this.integer()) return 0;
    if (this.high !== 0) return this.#refuse();
    return this.low;
  }

  /** A float of either width or an integer; 64-bit integers lose precision beyond 2^53. */
  number(): number {
    const byte = this.peek();
    if (byte === 0xca || byte === 0xcb) {
      const width = byte === 0xca ? 4 : 8;
      if (!this.#need(1 + width)) return 0;
      const at = this.at + 1;
      this.at = at + width;
      return width === 4 ? this.#view.getFloat32(at) : this.#view.getFloat64(at);
    }
    return this.integer() ? (this.high | 0) * 0x1_0000_0000 + this.low : 0;
  }

  /** Steps over one whole value, without recursion; O(bytes). */
  skip(): void {
    for (let left = 1; left > 0 && this.fault === null; left--) {
      const byte = this.peek();
      if (byte < 0) this.fault = "truncated";
      else if (byte <= 0x7f || byte >= 0xe0) this.at += 1;
      else if (byte <= 0x8f) left += 2 * this.mapHeader();
      else if (byte <= 0x9f) left += this.arrayHeader();
      else if (byte <= 0xbf) this.#step(this.textHeader());
      else left += this.#skipTagged(byte);
    }
  }

  /** Returns how many more values the stepped-over header announces. */
  #skipTagged(byte: number): number {
    if (byte === 0xc1) this.fault = "reserved_byte";
    else if (byte === 0xdc || byte === 0xdd) return this.arrayHeader();
    else if (byte === 0xde || byte === 0xdf) return 2 * this.mapHeader();
    else if (byte >= 0xd9) this.#step(this.textHeader());
    else if (byte >= 0xd4) this.#step(2 + (1 << (byte - 0xd4)));
    else if (byte >= 0xcc) this.#step(1 + (1 << ((byte - 0xcc) & 3)));
    else if (byte >= 0xca) this.#step(byte === 0xca ? 5 : 9);
    else if (byte >= 0xc7) this.#step(1 + this.#wideHeader(1 << (byte - 0xc7)));
    else if (byte >= 0xc4) this.#step(this.binaryHeader());
    else this.at += 1;
    return 0;
  }

  /** A count in the low bits of one byte, or a wide form; the last wide form has 4 bytes. */
  #header(short: number, shortLast: number, wide: number, wideLast: number): number {
    const byte = this.peek();
    if (byte >= short && byte <= shortLast) {
      this.at += 1;
      return byte - short;
    }
    return byte >= wide && byte <= wideLast
      ? this.#wideHeader(4 >> (wideLast - byte))
      : this.#refuse();
  }

  #wideHeader(width: number): number {
    if (!this.#need(1 + width)) return 0;
    const at = this.at + 1;
    this.at = at + width;
    if (width === 1) return this.bytes[at]!;
    return width === 2 ? this.#view.getUint16(at) : this.#view.getUint32(at);
  }

  #integer(width: number, low: number, high: number): boolean {
    this.at += width;
    this.low = low >>> 0;
    this.high = high >>> 0;
    return true;
  }

  #step(length: number): void {
    if (this.#need(length)) this.at += length;
  }

  #need(length: number): boolean {
    if (this.fault !== null) return false;
    if (length <= this.end - this.at) return true;
    this.fault = "truncated";
    return false;
  }

  /** Another type than asked for, or the end. */
  #refuse(): 0 {
    this.fault ??= this.at < this.end ? "type" : "truncated";
    return 0;
  }
}
