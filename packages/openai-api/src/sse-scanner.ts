const newline = 0x0a;
const carriageReturn = 0x0d;
const colon = 0x3a;
/** Bytes of a line that are enough to tell `data: [DONE]` from everything else. */
const prefixBytesMax = 15;
const doneLine = /^data: ?\[DONE\]$/;

/**
 * Follows a stream of server-sent events from line end to line end and never looks into the data.
 * Chunks may be cut anywhere. About two native searches per event.
 */
export class SseScanner {
  /** Start of the line in progress; longer lines keep their first bytes and their length. */
  readonly #prefix = new Uint8Array(prefixBytesMax);
  #lineBytes = 0;
  #hasFields = false;
  #sawDoneLine = false;
  #isDone = false;
  #events = 0;

  /** `data: [DONE]` came, and the empty line that ends it. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** The stream stands inside an event: a client would not see it, or glue it to the next one. */
  get isMidEvent(): boolean {
    return this.#hasFields || this.#lineBytes > 0;
  }

  /** Complete events so far, without comments, with `[DONE]`. */
  get events(): number {
    return this.#events;
  }

  push(bytes: Uint8Array): void {
    let at = 0;
    while (at < bytes.length) {
      const end = bytes.indexOf(newline, at);
      this.#extendLine(bytes, at, end === -1 ? bytes.length : end);
      if (end === -1) return;
      this.#endLine();
      at = end + 1;
    }
  }

  #extendLine(bytes: Uint8Array, start: number, end: number): void {
    for (let at = start; at < end && this.#lineBytes + at - start < prefixBytesMax; at++) {
      this.#prefix[this.#lineBytes + at - start] = bytes[at]!;
    }
    this.#lineBytes += end - start;
  }

  #endLine(): void {
    let length = this.#lineBytes;
    this.#lineBytes = 0;
    if (length <= prefixBytesMax && this.#prefix[length - 1] === carriageReturn) length--;
    if (length === 0) {
      if (this.#hasFields) this.#events++;
      this.#isDone ||= this.#sawDoneLine;
      this.#hasFields = false;
      this.#sawDoneLine = false;
    } else if (this.#prefix[0] !== colon) {
      this.#hasFields = true;
      if (length < prefixBytesMax) {
        this.#sawDoneLine ||= doneLine.test(
          String.fromCharCode(...this.#prefix.subarray(0, length)),
        );
      }
    }
  }
}
