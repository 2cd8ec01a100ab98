export {
  type DecodeCoefficients,
  decodeStepMs,
  type EngineProfile,
  engineProfiles,
  type PrefillCoefficients,
  prefillMs,
  profileDefault,
} from "./engine-timing.ts";
export { LearntRate } from "./learnt-rate.ts";
