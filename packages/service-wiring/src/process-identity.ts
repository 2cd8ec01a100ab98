import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

/** A name for this process that no other has, and a seed for its generator. */
export function processIdentity(service: string): { readonly id: string; readonly seed: number } {
  const random = randomBytes(6);
  return {
    id: `${service}-${hostname()}-${random.toString("hex")}`,
    seed: random.readUIntBE(0, 6),
  };
}
