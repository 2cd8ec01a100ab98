import {
  type EngineProfile,
  profileDefault,
  engineProfiles as profilesByName,
} from "@baton/perf-model";

export type { EngineProfile };

export const engineProfileNameDefault = profileDefault;

/** The schedulers' own profiles: one set of numbers on both sides. */
export const engineProfiles: readonly EngineProfile[] = Object.values(profilesByName);

export function findEngineProfile(name: string): EngineProfile | null {
  return profilesByName[name] ?? null;
}
