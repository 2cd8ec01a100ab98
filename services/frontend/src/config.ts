import { field, hostSections } from "@baton/service-host";
import { busSection, engineSection } from "@baton/service-wiring";
import { z } from "zod";

/** The API's port has /health, /ready and /metrics, so there is no section `admin`. */
const host = hostSections({ adminPort: 0 });

export const configSchema = z.strictObject({
  bus: busSection(),
  http: z.strictObject({
    host: field.host({ description: "Address of the OpenAI API." }).default("127.0.0.1"),
    port: field.port({ description: "Port of the OpenAI API." }).default(8000),
    apiKeysFile: field
      .secretFile({
        description: "Client API keys, one `name: key` a line; null lets everybody in.",
      })
      .nullable()
      .default(null),
    insecure: field
      .flag({ description: "Allows an address beyond loopback without API keys." })
      .default(false),
    bodyLimitBytes: field
      .bytes({ min: 1_024, description: "Largest request body; larger ones get 413." })
      .default(32 * 1024 * 1024),
    requestsLiveMax: field
      .integer({ min: 1, description: "Requests at once; more get 429." })
      .default(10_000),
  }),
  request: z.strictObject({
    deadlineMs: field
      .durationMs({ min: 1, description: "From a request's arrival to the end of its answer." })
      .default(1_800_000),
    attemptsMax: field
      .integer({
        min: 1,
        max: 8,
        description: "Plans per request: 2 means one more after a failed leg.",
      })
      .default(2),
    placeDeadlineMs: field
      .durationMs({ min: 1, description: "Longest wait for a prefill worker to be chosen." })
      .default(10_000),
    reserveDeadlineMs: field
      .durationMs({
        min: 1,
        description: "Longest wait for room on a decode worker; then the plan is handed back.",
      })
      .default(250),
    claimDeadlineMs: field
      .durationMs({ min: 1, description: "Longest wait for the broker's word on a handle." })
      .default(2_000),
    drainMsMax: field
      .durationMs({
        description:
          "A prefill whose client left is let finish when at most this much of it is left, else aborted.",
      })
      .default(500),
    abandonMsMax: field
      .durationMs({
        min: 1,
        description:
          "Longest wait for the decode leg that frees a prefill engine after its client left.",
      })
      .default(2_000),
  }),
  engine: z.strictObject({
    ...engineSection(),
    headersTimeoutMs: field
      .durationMs({
        min: 1,
        description: "Longest wait for an engine's answer to begin; a long prefill is within it.",
      })
      .default(1_800_000),
    bodyTimeoutMs: field
      .durationMs({ min: 1, description: "Longest silence inside an engine's answer." })
      .default(600_000),
  }),
  tokenizer: z.strictObject({
    mode: field
      .choice(["engine", "local", "none"], {
        description:
          "local: here, from a folder. engine: a worker's /tokenize. none: no overlap knowledge for text.",
      })
      .default("engine"),
    folder: field
      .text({ description: "Holds tokenizer.json and tokenizer_config.json; for mode local." })
      .nullable()
      .default(null),
    threads: field.integer({ min: 1, max: 64, description: "Threads of mode local." }).default(2),
    timeoutMs: field
      .durationMs({ min: 1, description: "Longest wait for one prompt." })
      .default(10_000),
  }),
  log: host.log,
  shutdown: host.shutdown,
});
