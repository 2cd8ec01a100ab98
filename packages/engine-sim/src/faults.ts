import { fail, type Outcome, ok } from "@baton/kit";

/** What a test can break. Counts run down with the generation requests that they hit. */
export interface Faults {
  /** Requests that answer 500. */
  failPrefill: number;
  /** Requests that answer 200 with a body that is not JSON. */
  garbage: number;
  /** Every request waits this long before the engine looks at it. */
  hangMs: number;
  /** The next request ends the process. */
  dieOnNext: boolean;
  /** The next stream is cut after this many tokens; 0: none. */
  cutStreamAfterTokens: number;
  /** Factor on step times. */
  slowdown: number;
  /** Handles are ignored: the decode engine computes the prompt itself. */
  ignoreHandles: boolean;
  /** Batches of cache events that are lost: numbered, replayable, not sent. */
  dropEvents: number;
  /** Cache events are no longer published at all. */
  muteEvents: boolean;
}

export function noFaults(): Faults {
  return {
    failPrefill: 0,
    garbage: 0,
    hangMs: 0,
    dieOnNext: false,
    cutStreamAfterTokens: 0,
    slowdown: 1,
    ignoreHandles: false,
    dropEvents: 0,
    muteEvents: false,
  };
}

/** Takes over what `body` names; every name and type is checked before anything changes. */
export function setFaults(faults: Faults, body: Record<string, unknown>): Outcome<void, string> {
  const known = faults as unknown as Record<string, unknown>;
  for (const [name, value] of Object.entries(body)) {
    if (!Object.hasOwn(faults, name)) return fail(`unknown fault ${name}`);
    if (typeof value !== typeof known[name]) {
      return fail(`${name} is a ${typeof known[name]}`);
    }
    if (typeof value === "number" && !(value >= 0)) return fail(`${name} is not negative`);
  }
  Object.assign(faults, body);
  return ok(undefined);
}
