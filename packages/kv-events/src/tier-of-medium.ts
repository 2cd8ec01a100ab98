import type { Tier } from "@baton/domain";

const tierByMedium = new Map<string, Tier>([
  ...(["gpu", "device"] as const).map((medium) => [medium, "gpu"] as const),
  ...(["cpu", "cpu_pinned", "cpu_tier1"] as const).map((medium) => [medium, "host"] as const),
  ...(["fs", "obj", "storage", "disk", "nvme", "cpu_tier2", "external"] as const).map(
    (medium) => [medium, "disk"] as const,
  ),
]);

/**
 * Tier of a medium as engines write it, in any case; LMCache sends torch device names, with an
 * index (`cpu:0`, `cuda:1`). Absent means the GPU: engines that do not name a medium have no other.
 * `unknown` is to be counted and not indexed.
 */
export function tierOfMedium(medium: string | null): Tier | "unknown" {
  if (medium === null) return "gpu";
  const known = tierByMedium.get(medium) ?? tierByMedium.get(medium.toLowerCase());
  if (known !== undefined) return known;
  const device = /^(cpu|cuda|gpu)(:\d+)?$/.exec(medium.toLowerCase())?.[1];
  if (device === undefined) return "unknown";
  return device === "cpu" ? "host" : "gpu";
}
