const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const space = 0x20;
const field = Uint8Array.from(Buffer.from("data:"));

/**
 * Finds the `data:` payloads of an event stream in chunks of any cut, without making text of them.
 * One line is one payload: OpenAI-style streams never spread one over lines. Comments and other
 * fields are skipped. The payload given is valid during the call.
 */
export class SseScanner {
  readonly #onPayload: (payload: Buffer) => void;
  #rest: Buffer | null = null;

  constructor(onPayload: (payload: Buffer) => void) {
    this.#onPayload = onPayload;
  }

  push(chunk: Buffer): void {
    const bytes = this.#rest === null ? chunk : Buffer.concat([this.#rest, chunk]);
    let from = 0;
    for (;;) {
      const end = bytes.indexOf(lineFeed, from);
      if (end < 0) break;
      this.#line(bytes, from, end);
      from = end + 1;
    }
    this.#rest = from === bytes.length ? null : bytes.subarray(from);
  }

  #line(bytes: Buffer, from: number, lineEnd: number): void {
    for (let at = 0; at < field.length; at++) if (bytes[from + at] !== field[at]) return;
    const start = from + field.length;
    const end = bytes[lineEnd - 1] === carriageReturn ? lineEnd - 1 : lineEnd;
    this.#onPayload(bytes.subarray(bytes[start] === space ? start + 1 : start, end));
  }
}
