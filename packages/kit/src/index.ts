export { Ewma } from "./ewma.ts";
export {
  type HashList,
  hashCount,
  hashFromBigInt,
  hashHex,
  hashListFromBytes,
  hashListToBytes,
  hashToBigInt,
} from "./hash-list.ts";
export { assertNever, InvariantError, invariant } from "./invariant.ts";
export { MinHeap } from "./min-heap.ts";
export { fail, type Outcome, ok } from "./outcome.ts";
export { Prng } from "./prng.ts";
export { Ring } from "./ring.ts";
export { absent, known, type Signal, unknown } from "./signal.ts";
