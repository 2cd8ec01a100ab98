/**
 * A measured quantity that keeps three things apart: `absent` (the source says it has none),
 * `unknown` (never heard, or not readable) and a value, which may be zero.
 */
export type Signal<T> =
  | { readonly kind: "unknown" }
  | { readonly kind: "absent" }
  | { readonly kind: "known"; readonly value: T; readonly atMs: number };

export const unknown: Signal<never> = { kind: "unknown" };
export const absent: Signal<never> = { kind: "absent" };

/** `atMs`: monotonic time of the measurement, on the clock of the process that made it. */
export function known<T>(value: T, atMs: number): Signal<T> {
  return { kind: "known", value, atMs };
}
