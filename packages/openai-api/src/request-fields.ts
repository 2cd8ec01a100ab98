import { type BatonError, batonError } from "@baton/domain";
import { findMember, type MemberSpan, memberValue, parseValue } from "./json-scan.ts";

/** Longest value of a small field (a model name, a salt) that is worth parsing here. */
const fieldBytesMax = 65_536;

/**
 * Typed reads of single members; a JSON null reads as absent, as engines have it. The first problem
 * is kept in `error`, later ones are dropped, and reads go on with the absent value.
 */
export class RequestFields {
  readonly #body: Uint8Array;
  readonly #members: readonly MemberSpan[];
  #error: BatonError | null = null;

  constructor(body: Uint8Array, members: readonly MemberSpan[]) {
    this.#body = body;
    this.#members = members;
  }

  get error(): BatonError | null {
    return this.#error;
  }

  isGiven(key: string): boolean {
    return this.#member(key) !== null;
  }

  /** Span of a value that is there and not null. */
  #member(key: string): MemberSpan | null {
    const member = findMember(this.#members, key);
    return member === null || this.#body[member.valueStart] === 0x6e ? null : member;
  }

  /** Size of the JSON text of a value; 0 when it is not given. */
  valueBytes(key: string): number {
    const member = this.#member(key);
    return member === null ? 0 : member.end - member.valueStart;
  }

  /** A string that is not empty. */
  text(key: string): string | null {
    const value = this.#value(key);
    if (value === undefined) return null;
    if (typeof value !== "string") return this.wrongType(key, "a string", value);
    if (value !== "") return value;
    return this.refuse(key, `Invalid value for '${key}': it must not be empty.`);
  }

  /** False when absent. */
  flag(key: string): boolean {
    const value = this.#value(key);
    if (value === undefined || typeof value === "boolean") return value === true;
    this.wrongType(key, "a boolean", value);
    return false;
  }

  integer(key: string, smallest: number): number | null {
    const value = this.#value(key);
    if (value === undefined) return null;
    if (!Number.isSafeInteger(value)) return this.wrongType(key, "an integer", value);
    if ((value as number) >= smallest) return value as number;
    const wanted = `Expected a value of at least ${smallest}, but got ${value}.`;
    return this.refuse(key, `Invalid value for '${key}'. ${wanted}`);
  }

  object(key: string): Readonly<Record<string, unknown>> | null {
    const value = this.#value(key);
    if (value === undefined) return null;
    if (typeof value !== "object" || Array.isArray(value)) {
      return this.wrongType(key, "an object", value);
    }
    return value as Record<string, unknown>;
  }

  missing(key: string): null {
    return this.refuse(key, `Missing required parameter: '${key}'.`);
  }

  wrongType(param: string, wanted: string, value: unknown): null {
    const got = value === null ? "null" : Array.isArray(value) ? "an array" : typeOf(value);
    return this.refuse(param, `Invalid type for '${param}': expected ${wanted}, but got ${got}.`);
  }

  refuse(param: string, message: string): null {
    this.#error ??= batonError("BATON_BAD_REQUEST", message, { param });
    return null;
  }

  #value(key: string): unknown {
    const member = this.#member(key);
    if (member === null) return undefined;
    if (member.end - member.valueStart > fieldBytesMax) {
      this.refuse(key, `Invalid value for '${key}': longer than ${fieldBytesMax} bytes.`);
      return undefined;
    }
    const value = parseValue(memberValue(this.#body, member));
    if (value === undefined) {
      this.#error ??= batonError("BATON_BAD_JSON", `The value of '${key}' is not valid JSON.`, {
        param: key,
      });
    }
    return value;
  }
}

function typeOf(value: unknown): string {
  if (typeof value === "object") return "an object";
  return typeof value === "number" ? `the number ${value}` : `a ${typeof value}`;
}
