import type { MemberSpan } from "./json-scan.ts";

export interface AppendedMember {
  readonly key: string;
  /** JSON text of the value; bytes are passed on as they are, not copied. */
  readonly value: Uint8Array | string;
}

export interface Splice {
  /** Every occurrence of these keys goes. */
  readonly remove: ReadonlySet<string>;
  /** Added at the end, in order; the caller removes what they replace. */
  readonly append: readonly AppendedMember[];
}

const utf8 = new TextEncoder();
const emptyObject = utf8.encode("{}");
const openBrace = utf8.encode("{");
const closeBrace = utf8.encode("}");
const comma = utf8.encode(",");

/**
 * The object `body`, whose `members` come from `scanTopLevel`, with members removed and added:
 * chunks that together are valid JSON. What stays is a view into `body`, byte for byte, so that no
 * number loses digits and nothing large is copied. O(members).
 */
export function spliceMembers(
  body: Uint8Array,
  members: readonly MemberSpan[],
  splice: Splice,
): Uint8Array[] {
  const chunks: Uint8Array[] = [];
  for (let index = 0; index < members.length; index++) {
    if (splice.remove.has(members[index]!.key)) continue;
    const first = members[index]!;
    // A run of neighbours that stay is one view, with the commas and white space between them.
    while (index + 1 < members.length && !splice.remove.has(members[index + 1]!.key)) index++;
    const isWholeHead = chunks.length === 0 && first === members[0];
    if (!isWholeHead) chunks.push(chunks.length === 0 ? openBrace : comma);
    chunks.push(body.subarray(isWholeHead ? 0 : first.start, members[index]!.end));
  }
  if (chunks.length === 0 && splice.append.length === 0) return [emptyObject];
  let text = "";
  for (const { key, value } of splice.append) {
    text += `${chunks.length === 0 && text === "" ? "{" : ","}${JSON.stringify(key)}:`;
    if (typeof value === "string") text += value;
    else {
      chunks.push(utf8.encode(text), value);
      text = "";
    }
  }
  chunks.push(text === "" ? closeBrace : utf8.encode(`${text}}`));
  return chunks;
}

export function joinChunks(chunks: readonly Uint8Array[]): Uint8Array {
  let size = 0;
  for (const chunk of chunks) size += chunk.length;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
