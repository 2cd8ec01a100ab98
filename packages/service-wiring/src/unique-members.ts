import type { z } from "zod";

/** A check for lists of a config schema: no two members have the same `key`. */
export function uniqueMembers<K extends string>(
  list: string,
  key: K,
): (members: readonly Readonly<Record<K, unknown>>[], context: z.RefinementCtx) => void {
  return (members, context) => {
    const firstAt = new Map<unknown, number>();
    members.forEach((member, at) => {
      const first = firstAt.get(member[key]);
      if (first === undefined) firstAt.set(member[key], at);
      else {
        const message = `is the ${key} of ${list}[${first}] too`;
        context.addIssue({ code: "custom", path: [at, key], message });
      }
    });
  };
}
