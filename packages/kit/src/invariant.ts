/** A broken promise of our own code. It is never caught to go on: the process logs it and dies. */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

/** Throws when `condition` is false. For programmer errors only; bad input gets an error value. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new InvariantError(message);
}

/** Ends an exhaustive `switch`; the compiler refuses it while a case is missing. */
export function assertNever(value: never): never {
  throw new InvariantError(`unhandled case: ${JSON.stringify(value)}`);
}
