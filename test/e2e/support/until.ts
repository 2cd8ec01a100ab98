/**
 * Looks again and again until `condition` gives something truthy, and gives that. Throws with `what`
 * and the last value when the deadline has passed. A condition that throws does not hold yet.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  what: string,
  deadlineMs = 20_000,
): Promise<NonNullable<T>> {
  const endMs = performance.now() + deadlineMs;
  for (;;) {
    let seen: unknown;
    try {
      const value = await condition();
      if (value) return value;
      seen = value;
    } catch (error) {
      seen = error;
    }
    if (performance.now() > endMs) {
      throw new Error(`not within ${deadlineMs} ms: ${what}; last seen: ${String(seen)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
