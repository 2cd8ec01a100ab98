/** How long a refusal is believed: permissions may be mended without a reconnect. */
const believedMs = 10_000;
const subjectsMax = 1024;

/**
 * Subjects on which the server refused this user's publications. The server says so only after
 * the fact; remembering it makes the next request fail at once instead of by its deadline.
 */
export class ForbiddenSubjects {
  readonly #untilMs = new Map<string, number>();

  /** False: it was known. */
  add(subject: string, nowMs: number): boolean {
    const isNew = !this.has(subject, nowMs);
    if (this.#untilMs.size >= subjectsMax) {
      const oldest = this.#untilMs.keys().next();
      if (!oldest.done) this.#untilMs.delete(oldest.value);
    }
    this.#untilMs.set(subject, nowMs + believedMs);
    return isNew;
  }

  has(subject: string, nowMs: number): boolean {
    if (this.#untilMs.size === 0) return false;
    const untilMs = this.#untilMs.get(subject);
    if (untilMs === undefined) return false;
    if (nowMs < untilMs) return true;
    this.#untilMs.delete(subject);
    return false;
  }

  clear(): void {
    this.#untilMs.clear();
  }
}
