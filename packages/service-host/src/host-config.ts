import { z } from "zod";
import { field } from "./config-field.ts";

/** What runService itself needs of a service's config; `hostSections` provides it. */
export interface HostConfig {
  readonly log: {
    readonly level: "debug" | "info" | "warn" | "error";
    readonly format: "auto" | "json" | "pretty";
  };
  readonly shutdown: { readonly drainDeadlineMs: number };
}

/**
 * The sections that every service has: `z.strictObject({ ...hostSections({ adminPort }), … })`.
 */
export function hostSections(defaults: { readonly adminPort: number }) {
  return {
    log: z.strictObject({
      level: field
        .choice(["debug", "info", "warn", "error"], { description: "Least level that is logged." })
        .default("info"),
      format: field
        .choice(["auto", "json", "pretty"], {
          description: "auto: one readable line on a terminal, else JSON.",
        })
        .default("auto"),
    }),
    admin: z.strictObject({
      host: field
        .host({ description: "Address of /health, /ready, /metrics and /debug." })
        .default("127.0.0.1"),
      port: field
        .port({ description: "Port of the same; 0 takes a free one." })
        .default(defaults.adminPort),
      tokenFile: field
        .secretFile({ description: "Bearer token for /metrics and /debug; null for none." })
        .nullable()
        .default(null),
      insecure: field
        .flag({ description: "Allows an address beyond loopback without a token." })
        .default(false),
    }),
    shutdown: z.strictObject({
      drainDeadlineMs: field
        .durationMs({
          min: 0,
          max: 3_600_000,
          description: "How long running work may go on after SIGTERM before it is cut.",
        })
        .default(30_000),
    }),
  } as const;
}
