import { hash, timingSafeEqual } from "node:crypto";

export interface ApiKeys {
  /** Name of the owner of the key in an Authorization header; null when there is none. */
  ownerOf(authorization: string | undefined): string | null;
}

/**
 * Keys are known by their SHA-256 alone. A lookup by digest tells an attacker nothing about a key,
 * since near keys have unrelated digests; the digest found is compared in constant time all the same.
 */
export function createApiKeys(hashes: ReadonlyMap<string, string>): ApiKeys {
  const known = new Map<string, { readonly digest: Buffer; readonly owner: string }>();
  for (const [hex, owner] of hashes) {
    known.set(hex.toLowerCase(), { digest: Buffer.from(hex, "hex"), owner });
  }
  return {
    ownerOf(authorization) {
      const key = /^Bearer +([^ ]+) *$/i.exec(authorization ?? "")?.[1];
      if (key === undefined) return null;
      const digest = hash("sha256", key, "buffer");
      const found = known.get(digest.toString("hex"));
      if (found === undefined || found.digest.length !== digest.length) return null;
      return timingSafeEqual(found.digest, digest) ? found.owner : null;
    },
  };
}
