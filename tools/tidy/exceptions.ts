/** Files over 250 lines with their exact count. An entry may shrink or go, and needs a reason. */
export const lengthExceptions: Readonly<Record<string, number>> = {
  // The one catalogue: each error code is an entry of seven lines.
  "packages/domain/src/errors.ts": 301,
  // One state machine: whoever changes a transition needs all of them before the eyes.
  "packages/request-flow/src/request-flow.ts": 355,
};
