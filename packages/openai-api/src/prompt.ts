import { findMember, parseValue, scanMembers, stepElements } from "./json-scan.ts";
import { faultAt, skipSpace, skipValue } from "./json-skip.ts";
import type { RequestFields } from "./request-fields.ts";
import { isTokenIdFault, readTokenIds } from "./token-ids.ts";

/**
 * Looks at `messages` or `prompt` while the body is scanned, so that the large part of a request is
 * walked once. Called once per occurrence; the last one counts. Problems of shape are kept for
 * `report`, problems of syntax end the scan.
 */
export class PromptReader {
  /** Ids of the one list of token ids, when the prompt is that. */
  tokenIds: Uint32Array | null = null;
  /** Sequences to prefill. */
  count = 0;
  #problem: ((fields: RequestFields) => void) | null = null;
  readonly #body: Uint8Array;

  constructor(body: Uint8Array) {
    this.#body = body;
  }

  report(fields: RequestFields): void {
    this.#problem?.(fields);
  }

  /** `messages`: a list, not empty, of objects with a `role`; their content is the engine's business. */
  stepMessages(from: number): number {
    const body = this.#body;
    this.#reset();
    if (body[from] !== 0x5b) return this.#wrongType("messages", "an array of objects", from);
    const end = stepElements(body, from, (index, at) => this.#stepMessage(index, at));
    if (this.count === 0) this.#refuseEmpty("messages");
    this.count = 1;
    return end;
  }

  /** `prompt`: text, token ids, or a list of either; none may be empty. */
  stepPrompt(from: number): number {
    const body = this.#body;
    this.#reset();
    if (body[from] === 0x22) return this.#stepText("prompt", from);
    if (body[from] !== 0x5b) return this.#wrongType("prompt", promptForms, from);
    if (isNumber(body[skipSpace(body, from + 1)])) return this.#stepIds("prompt", from);
    let firstKind: number | undefined;
    const end = stepElements(body, from, (index, at) => {
      const param = `prompt[${index}]`;
      firstKind ??= body[at];
      if (body[at] !== firstKind) {
        this.#problem ??= (fields) => fields.refuse("prompt", "'prompt' mixes several forms.");
      }
      if (body[at] === 0x5b) return this.#stepIds(param, at);
      return body[at] === 0x22
        ? this.#stepText(param, at)
        : this.#wrongType(param, promptForms, at);
    });
    if (this.count === 0) this.#refuseEmpty("prompt");
    if (this.count > 1) this.tokenIds = null;
    return end;
  }

  #reset(): void {
    this.tokenIds = null;
    this.count = 0;
    this.#problem = null;
  }

  #stepMessage(index: number, from: number): number {
    const body = this.#body;
    const param = `messages[${index}]`;
    this.count++;
    if (body[from] !== 0x7b) return this.#wrongType(param, "an object", from);
    const scanned = scanMembers(body, from);
    if (!scanned.ok) return faultAt(scanned.error.atByte);
    const role = findMember(scanned.value.members, "role");
    if (role === null) this.#problem ??= (fields) => fields.missing(`${param}.role`);
    else if (body[role.valueStart] !== 0x22) {
      this.#wrongType(`${param}.role`, "a string", role.valueStart);
    }
    return scanned.value.end;
  }

  #stepText(param: string, from: number): number {
    this.count++;
    const end = skipValue(this.#body, from);
    if (end === from + 2) this.#refuseEmpty(param);
    return end;
  }

  #stepIds(param: string, from: number): number {
    this.count++;
    const read = readTokenIds(this.#body, from);
    if (!isTokenIdFault(read)) {
      this.tokenIds = read.ids;
      return read.end;
    }
    const { index, message } = read;
    this.#problem ??= (fields) =>
      fields.refuse(`${param}[${index}]`, `Invalid value for '${param}': ${message}.`);
    return skipValue(this.#body, from);
  }

  #refuseEmpty(param: string): void {
    this.#problem ??= (fields) =>
      fields.refuse(param, `Invalid value for '${param}': it must not be empty.`);
  }

  #wrongType(param: string, wanted: string, from: number): number {
    const end = skipValue(this.#body, from);
    if (end < 0) return end;
    const value = parseValue(this.#body.subarray(from, end));
    this.#problem ??= (fields) => fields.wrongType(param, wanted, value);
    return end;
  }
}

const promptForms = "a string, an array of strings, or an array of token ids";

function isNumber(byte: number | undefined): boolean {
  return byte === 0x2d || (byte !== undefined && byte >= 0x30 && byte <= 0x39);
}
