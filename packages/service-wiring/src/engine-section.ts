import type { BatonError } from "@baton/domain";
import { createEngineClient, type EngineCredentials, type EngineHttpClient } from "@baton/engines";
import { type Outcome, ok } from "@baton/kit";
import type { Logger } from "@baton/ports";
import { field, readSecretFile } from "@baton/service-host";
import { z } from "zod";
import { readTextFile } from "./read-text-file.ts";
import { uniqueMembers } from "./unique-members.ts";

export interface EngineSettings {
  readonly connectTimeoutMs: number;
  readonly keepAliveIdleMs: number;
  readonly connectionsPerWorkerMax: number;
  readonly tokenFile: string | null;
  readonly caFile: string | null;
  readonly credentials: readonly {
    readonly workerId: string;
    readonly tokenFile: string | null;
    readonly caFile: string | null;
  }[];
}

const tokenFile = field
  .secretFile({ description: "Bearer token (vLLM's --api-key); null for none." })
  .nullable()
  .default(null);
const caFile = field
  .text({ description: "Authorities to trust for https engines, PEM; null takes the system's." })
  .nullable()
  .default(null);

/** The section `engine` of every service: how engines are reached. */
export function engineSection() {
  return {
    connectTimeoutMs: field
      .durationMs({ min: 1, description: "Longest time to open a connection to an engine." })
      .default(2_000),
    keepAliveIdleMs: field
      .durationMs({
        min: 1,
        max: 4_500,
        description: "How long an idle connection is kept; engines close theirs after 5 s.",
      })
      .default(4_000),
    connectionsPerWorkerMax: field
      .integer({ min: 1, description: "Exchanges in flight with one worker." })
      .default(4_096),
    tokenFile,
    caFile,
    credentials: z
      .array(
        z.strictObject({
          workerId: field.text({ description: "Worker that these are for." }),
          tokenFile,
          caFile,
        }),
      )
      .superRefine(uniqueMembers("credentials", "workerId"))
      .meta({ description: "Token and CA of single workers, instead of the two above." })
      .default([]),
  };
}

/** Errors: BATON_CONFIG_INVALID when a named file cannot be read. */
export function openEngineClient(
  settings: EngineSettings,
  logger: Logger,
): Outcome<EngineHttpClient, BatonError> {
  const common = readCredentials("engine", settings);
  if (!common.ok) return common;
  const byWorker = new Map<string, EngineCredentials>();
  for (const each of settings.credentials) {
    const read = readCredentials(`engine.credentials of ${each.workerId}`, each);
    if (!read.ok) return read;
    byWorker.set(each.workerId, read.value);
  }
  return ok(
    createEngineClient({
      ...settings,
      credentials: (workerId) => byWorker.get(workerId) ?? common.value,
      logger,
    }),
  );
}

function readCredentials(
  key: string,
  files: { readonly tokenFile: string | null; readonly caFile: string | null },
): Outcome<EngineCredentials, BatonError> {
  let credentials: EngineCredentials = {};
  if (files.tokenFile !== null) {
    const token = readSecretFile(files.tokenFile);
    if (!token.ok) return token;
    credentials = { ...credentials, bearerToken: token.value.secret };
  }
  if (files.caFile !== null) {
    const ca = readTextFile(`${key}.caFile`, files.caFile);
    if (!ca.ok) return ca;
    credentials = { ...credentials, caPem: ca.value };
  }
  return ok(credentials);
}
