import { setTimeout as sleep } from "node:timers/promises";
import type { BusHooks, BusLimits, ObservedBus } from "../src/index.ts";

export interface ClientOptions extends BusHooks {
  readonly name?: string;
  readonly limits?: Partial<BusLimits>;
}

/** One bus implementation, as the contract suite drives it. */
export interface Harness {
  connect(options?: ClientOptions): Promise<ObservedBus>;
  /** Takes the connections of all clients away, and gives them back. */
  interrupt(): Promise<void>;
  resume(): Promise<void>;
}

let subjects = 0;

/** A subject that no other test uses. */
export function freshSubject(): string {
  return `contract.s${++subjects}`;
}

/** Waits for a condition; fails the test when it does not come. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  const endMs = performance.now() + 20_000;
  while (!condition()) {
    if (performance.now() > endMs) throw new Error(`waited in vain until ${what}`);
    await sleep(2);
  }
}

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

export function text(payload: Uint8Array): string {
  return new TextDecoder().decode(payload);
}

/** Longer than the tests' timeout: an answer that needs the deadline fails the run. */
export const longMs = 600_000;
