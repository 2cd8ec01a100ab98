import { invariant } from "@baton/kit";

// Tokens are joined by dots, not empty, without white space; `*` and `>` are whole tokens.
const concreteSubject = /^[^\s.*>]+(?:\.[^\s.*>]+)*$/;
const subjectPattern = /^(?:(?:[^\s.*>]+|\*)\.)*(?:[^\s.*>]+|\*|>)$/;

/** Whether `subject` can be sent to. */
export function isSubject(subject: string): boolean {
  return concreteSubject.test(subject);
}

/** Throws unless `subject` can be sent to. A bad one could break out of its protocol line. */
export function checkSubject(subject: string): void {
  invariant(isSubject(subject), `not a subject to send to: ${JSON.stringify(subject)}`);
}

/** Throws unless `subject` can be listened on. */
export function checkPattern(subject: string): void {
  invariant(subjectPattern.test(subject), `not a subject to listen on: ${JSON.stringify(subject)}`);
}

/** Throws unless `queue` can name a queue group. */
export function checkQueue(queue: string): void {
  invariant(concreteSubject.test(queue), `not a queue group name: ${JSON.stringify(queue)}`);
}

export function isPattern(subject: string): boolean {
  return subject.includes("*") || subject.includes(">");
}

/** Whether tokens of a pattern cover those of a concrete subject. */
export function matchTokens(pattern: readonly string[], subject: readonly string[]): boolean {
  for (let index = 0; index < pattern.length; index++) {
    if (index >= subject.length) return false;
    const token = pattern[index];
    if (token === ">") return true;
    if (token !== "*" && token !== subject[index]) return false;
  }
  return pattern.length === subject.length;
}
