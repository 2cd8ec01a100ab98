import type { Pool } from "@baton/domain";

/**
 * Subjects are `baton.v1.<model>.<pool>.<verb>`. The model's name is made safe for one NATS token:
 * every byte but ASCII letters, digits, `-` and `_` becomes `~` and two hex digits.
 */
const prefix = "baton.v1";

/** request/reply: place, reserve, handle, decisions. publish: outcome, frontend, fleet. */
export type Verb = "place" | "reserve" | "handle" | "decisions" | "outcome" | "frontend" | "fleet";

export function subjectOf(model: string, pool: Pool, verb: Verb): string {
  return `${prefix}.${modelToken(model)}.${pool}.${verb}`;
}

/** Every model and pool; for subscriptions of frontends, and for permission tables. */
export function anyModelSubject(pool: Pool | "*", verb: Verb): string {
  return `${prefix}.*.${pool}.${verb}`;
}

export function modelToken(model: string): string {
  let token = "";
  for (const byte of new TextEncoder().encode(model)) {
    const char = String.fromCharCode(byte);
    token += /[A-Za-z0-9_-]/.test(char) ? char : `~${byte.toString(16).padStart(2, "0")}`;
  }
  return token;
}
