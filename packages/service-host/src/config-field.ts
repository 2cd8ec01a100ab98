import { invariant } from "@baton/kit";
import { z } from "zod";
import type { ConfigMeta } from "./config-tree.ts";

interface About {
  /** One line for docs/config.md: what it does, and what happens at the edges. */
  readonly description: string;
}

/** The longest timer of Node and of browsers, 2^31 - 1 ms: about 24.8 days. */
const durationMsMax = 2_147_483_647;

/** A value that is never printed, neither in the effective config nor in a problem. */
export function secret<S extends z.ZodType>(schema: S): S {
  return withMeta(schema, { secret: true });
}

function withMeta<S extends z.ZodType>(schema: S, meta: ConfigMeta): S {
  return schema.meta({ ...schema.meta(), ...meta }) as S;
}

/**
 * Leaves of config schemas. Each carries its description, unit and range, which the problems, the
 * printed config, docs/config.md and the JSON schema all read from here.
 */
export const field = {
  /** Key ends in `Ms`. A duration that may be 0 says in its description what 0 means. */
  durationMs(about: About & { min?: number; max?: number }) {
    return field.integer({ min: 0, max: durationMsMax, ...about, unit: "ms" });
  },

  /** Key ends in `Bytes`. */
  bytes(about: About & { min?: number; max?: number }) {
    return field.integer({ min: 0, ...about, unit: "bytes" });
  },

  /** `unit`: must appear in the key, e.g. `tokens` in `queueTokensMax`. */
  integer(about: About & { min?: number; max?: number; unit?: string }) {
    const { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER } = about;
    invariant(min <= max, `empty range ${min} to ${max}`);
    return withMeta(z.int().min(min).max(max), {
      description: about.description,
      ...(about.unit === undefined ? {} : { unit: about.unit }),
    });
  },

  number(about: About & { min: number; max: number; unit?: string }) {
    return withMeta(z.number().min(about.min).max(about.max), {
      description: about.description,
      ...(about.unit === undefined ? {} : { unit: about.unit }),
    });
  },

  /** 0 to 1. */
  ratio(about: About) {
    return field.number({ ...about, min: 0, max: 1 });
  },

  flag(about: About) {
    return withMeta(z.boolean(), about);
  },

  text(about: About & { min?: number; max?: number }) {
    const { min = 1, max = 4_096 } = about;
    return withMeta(z.string().min(min).max(max), { description: about.description });
  },

  choice<const V extends readonly [string, ...string[]]>(values: V, about: About) {
    return withMeta(z.enum(values), about);
  },

  /** 0 lets the system choose a free port. */
  port(about: About) {
    return withMeta(z.int().min(0).max(65_535), about);
  },

  /** A name or an IP address to listen on; IPv6 without brackets. */
  host(about: About) {
    return withMeta(
      z
        .string()
        .regex(/^[^\s/@[\]]+$/)
        .max(253),
      {
        description: about.description,
        allowed: "a host name or an IP address",
      },
    );
  },

  /** `host:port`, an IPv6 host in brackets. */
  hostPort(about: About) {
    return withMeta(z.string().refine(isHostPort, { error: "is not host:port" }), {
      description: about.description,
      allowed: "host:port, such as 10.0.0.1:5557 or [fd00::1]:5557",
    });
  },

  /** `schemes` without `://`, e.g. `["nats", "tls"]`. */
  url(about: About & { readonly schemes: readonly string[] }) {
    const { schemes } = about;
    return withMeta(
      z.string().refine((text) => isUrl(text, schemes), { error: "is not such a URL" }),
      {
        description: about.description,
        allowed: `a URL starting with ${schemes.map((scheme) => `${scheme}://`).join(" or ")}`,
      },
    );
  },

  /**
   * The path of a file that holds a secret; key ends in `File`. loadConfig checks that it can be
   * read, `readSecretFile` reads it.
   */
  secretFile(about: About) {
    return withMeta(z.string().min(1), {
      description: about.description,
      secretFile: true,
      allowed: "the path of a readable file",
    });
  },
} as const;

function isHostPort(text: string): boolean {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^\s/@:[\]]+)):(\d{1,5})$/i.exec(text);
  return match !== null && Number(match[3]) <= 65_535;
}

function isUrl(text: string, schemes: readonly string[]): boolean {
  const url = URL.parse(text);
  return url !== null && url.host !== "" && schemes.includes(url.protocol.slice(0, -1));
}
