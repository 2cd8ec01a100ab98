import { fail, type Outcome, ok } from "@baton/kit";
import { faultAt, faultIndex, skipSpace, skipString, skipValue } from "./json-skip.ts";

/** One member of a JSON object, as byte offsets into the scanned text. */
export interface MemberSpan {
  /** Unescaped: `"kv\u005fx"` and `"kv_x"` are the same key. */
  readonly key: string;
  /** Opening quote of the key. */
  readonly start: number;
  /** First byte of the value. */
  readonly valueStart: number;
  /** After the last byte of the value, which is also the end of the member. */
  readonly end: number;
}

export interface ScanFault {
  readonly atByte: number;
  readonly message: string;
}

/** More members or elements than any request has; a list over it is refused, not cut. */
export const membersMax = 10_000;

/**
 * Steps over the value at `from`, perhaps looking at it on the way; returns what the steps of
 * json-skip.ts return.
 */
export type ValueStep<Name> = (name: Name, from: number) => number;

/**
 * Members of a JSON object in the order of the text, duplicates included; nothing is built but the
 * keys. O(bytes): see json-skip.ts for what is checked and what is left to whoever parses a value.
 * Fails when the text is not one object, or is cut off.
 */
export function scanTopLevel(
  body: Uint8Array,
  step?: ValueStep<string>,
): Outcome<MemberSpan[], ScanFault> {
  const start = skipSpace(body, 0);
  if (start === body.length) return fail({ atByte: 0, message: "the text is empty" });
  const scanned = scanMembers(body, start, step);
  if (!scanned.ok) return scanned;
  const rest = skipSpace(body, scanned.value.end);
  if (rest !== body.length) return fault(rest, "expected the end of the text");
  return ok(scanned.value.members);
}

/** The object whose brace opens at `from`; `end` is after its closing brace. */
export function scanMembers(
  bytes: Uint8Array,
  from: number,
  step: ValueStep<string> = (_key, at) => skipValue(bytes, at),
): Outcome<{ readonly members: MemberSpan[]; readonly end: number }, ScanFault> {
  if (bytes[from] !== 0x7b) return fault(from, "expected an object");
  const members: MemberSpan[] = [];
  let at = skipSpace(bytes, from + 1);
  if (bytes[at] === 0x7d) return ok({ members, end: at + 1 });
  for (;;) {
    const start = at;
    if (bytes[start] !== 0x22) return fault(start, "expected a member name in double quotes");
    at = skipString(bytes, start);
    if (at < 0) return fault(faultIndex(at), "a string has no end");
    const key = readKey(bytes, start, at);
    if (key === null) return fault(start, "the member name is not a valid string");
    at = skipSpace(bytes, at);
    if (bytes[at] !== 0x3a) return fault(at, "expected ':'");
    const valueStart = skipSpace(bytes, at + 1);
    at = step(key, valueStart);
    if (at < 0) return fault(faultIndex(at), "expected a value");
    if (members.length === membersMax) return fault(start, `more than ${membersMax} members`);
    members.push({ key, start, valueStart, end: at });
    at = skipSpace(bytes, at);
    if (bytes[at] === 0x7d) return ok({ members, end: at + 1 });
    if (bytes[at] !== 0x2c) return fault(at, "expected ',' or '}'");
    at = skipSpace(bytes, at + 1);
  }
}

/** Steps over the array whose bracket opens at `from`, element by element; counts them in `step`. */
export function stepElements(bytes: Uint8Array, from: number, step: ValueStep<number>): number {
  let at = skipSpace(bytes, from + 1);
  if (bytes[at] === 0x5d) return at + 1;
  for (let index = 0; ; index++) {
    if (index === membersMax) return faultAt(at);
    at = step(index, at);
    if (at < 0) return at;
    at = skipSpace(bytes, at);
    if (bytes[at] === 0x5d) return at + 1;
    if (bytes[at] !== 0x2c) return faultAt(at);
    at = skipSpace(bytes, at + 1);
  }
}

/** Last member with this key, as `JSON.parse` and engines read duplicates. */
export function findMember(members: readonly MemberSpan[], key: string): MemberSpan | null {
  return members.findLast((member) => member.key === key) ?? null;
}

/** The value's bytes, a view into `body`. */
export function memberValue(body: Uint8Array, member: MemberSpan): Uint8Array {
  return body.subarray(member.valueStart, member.end);
}

/**
 * Raw bytes of a top-level value, so that integers above 2^53 and floats keep every digit; null when
 * the key is not there or `body` is not an object. Last occurrence wins.
 */
export function memberBytes(body: Uint8Array, key: string): Uint8Array | null {
  const scanned = scanTopLevel(body);
  if (!scanned.ok) return null;
  const member = findMember(scanned.value, key);
  return member === null ? null : memberValue(body, member);
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The parsed value, or undefined where the bytes are not valid JSON in UTF-8. */
export function parseValue(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(shortAscii(bytes) ?? utf8.decode(bytes));
  } catch {
    return undefined;
  }
}

/** Small values are nearly always ASCII, and a call of the decoder costs more than reading them. */
function shortAscii(bytes: Uint8Array): string | null {
  if (bytes.length > 64) return null;
  let text = "";
  for (const byte of bytes) {
    if (byte > 0x7e) return null;
    text += String.fromCharCode(byte);
  }
  return text;
}

/** `start` is the opening quote, `end` after the closing one. */
function readKey(bytes: Uint8Array, start: number, end: number): string | null {
  let key = "";
  for (let at = start + 1; at < end - 1; at++) {
    const byte = bytes[at]!;
    if (byte < 0x20 || byte > 0x7e || byte === 0x5c) {
      const parsed = parseValue(bytes.subarray(start, end));
      return typeof parsed === "string" ? parsed : null;
    }
    key += String.fromCharCode(byte);
  }
  return key;
}

function fault(atByte: number, message: string): Outcome<never, ScanFault> {
  return fail({ atByte, message });
}
