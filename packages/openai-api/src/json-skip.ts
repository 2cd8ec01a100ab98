/**
 * Byte-level steps over JSON text. Each takes the index where a thing starts and returns the index
 * after it, or `faultAt(index)`, a negative number, where the text cannot be JSON. Nothing is built.
 *
 * Strings are crossed with `indexOf`, which on a `Buffer` is memchr: 400 KB of prose cost
 * microseconds. The content of strings and the punctuation below the first level are not checked:
 * whoever reads a value parses it. What is checked (quotes, brackets in matching pairs) is what
 * every JSON parser agrees on, so no parser can see a member at a level where these steps do not.
 */

/** Deeper nesting is refused; engines' own parsers stop near 1,000. */
export const nestingDepthMax = 512;

const quote = 0x22;
const backslash = 0x5c;
const openBracket = 0x5b;
const openBrace = 0x7b;

export function faultAt(at: number): number {
  return -1 - at;
}

/** Where the fault lies, from what a step returned. */
export function faultIndex(result: number): number {
  return -1 - result;
}

export function skipSpace(bytes: Uint8Array, from: number): number {
  let at = from;
  while (isSpace(bytes[at])) at++;
  return at;
}

/** `from` is the opening quote. */
export function skipString(bytes: Uint8Array, from: number): number {
  let at = from + 1;
  // A byte loop wins on short strings and dense escapes, the native search on everything else.
  let loopBytes = 32;
  for (;;) {
    const loopEnd = Math.min(at + loopBytes, bytes.length);
    while (at < loopEnd) {
      const byte = bytes[at];
      if (byte === quote) return at + 1;
      at += byte === backslash ? 2 : 1;
    }
    if (at >= bytes.length) return faultAt(from);
    const found = bytes.indexOf(quote, at);
    if (found === -1) return faultAt(from);
    let slash = found;
    while (slash > at && bytes[slash - 1] === backslash) slash--;
    if ((found - slash) % 2 === 0) return found + 1;
    loopBytes = found - at < 256 ? 4_096 : 32;
    at = found + 1;
  }
}

/** Any value; literals and numbers are checked, strings and nested values only for their extent. */
export function skipValue(bytes: Uint8Array, from: number): number {
  const first = bytes[from];
  if (first === quote) return skipString(bytes, from);
  if (first === openBrace || first === openBracket) return skipNested(bytes, from);
  return skipScalar(bytes, from);
}

const closers = new Uint8Array(nestingDepthMax);

function skipNested(bytes: Uint8Array, from: number): number {
  let depth = 0;
  let at = from;
  while (at < bytes.length) {
    const byte = bytes[at]!;
    if (byte === quote) {
      at = skipString(bytes, at);
      if (at < 0) return at;
      continue;
    }
    // ASCII puts each closer two after its opener.
    if (byte === openBrace || byte === openBracket) {
      if (depth === nestingDepthMax) return faultAt(at);
      closers[depth++] = byte + 2;
      if (byte === openBracket) at = skipNumbers(bytes, at);
    } else if (byte === openBrace + 2 || byte === openBracket + 2) {
      if (closers[--depth] !== byte) return faultAt(at);
      if (depth === 0) return at + 1;
    }
    at++;
  }
  return faultAt(from);
}

const notInNumbers = [quote, openBracket, openBrace, openBrace + 2];

/** For long lists of token ids: the last byte before `]` when only scalars stand between, else `from`. */
function skipNumbers(bytes: Uint8Array, from: number): number {
  const first = bytes[skipSpace(bytes, from + 1)];
  if (first === undefined || first < 0x30 || first > 0x39) return from;
  const close = bytes.indexOf(openBracket + 2, from + 1);
  if (close === -1) return from;
  const inside = bytes.subarray(from + 1, close);
  return notInNumbers.some((byte) => inside.includes(byte)) ? from : close - 1;
}

const scalarPattern = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/;

/** A longer number is not one that any engine could read. */
const scalarBytesMax = 1_024;

function skipScalar(bytes: Uint8Array, from: number): number {
  let at = from;
  while (at < bytes.length && !endsScalar(bytes[at]!)) at++;
  if (at - from > scalarBytesMax) return faultAt(from);
  const text = String.fromCharCode(...bytes.subarray(from, at));
  return scalarPattern.test(text) ? at : faultAt(from);
}

function endsScalar(byte: number): boolean {
  return byte === 0x2c || byte === openBrace + 2 || byte === openBracket + 2 || isSpace(byte);
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}
