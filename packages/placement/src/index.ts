export { DecodePool } from "./decode-pool.ts";
export type {
  DecodePoolOptions,
  DecodeStats,
  PrefillOffer,
  Reservation,
  ReserveRequest,
  ReserveResult,
} from "./decode-types.ts";
export { type Policy, policies } from "./pick.ts";
export { PrefillPool } from "./prefill-pool.ts";
export type {
  OfferedPrefill,
  PlaceRequest,
  PlaceResult,
  PrefillPoolOptions,
  PrefillStats,
} from "./prefill-types.ts";
export { type AttemptKey, attemptKey, type HashSet, type Moment } from "./request.ts";
