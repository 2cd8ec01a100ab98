import { field } from "@baton/service-host";
import { poolSections } from "@baton/service-wiring";
import { z } from "zod";

export const configSchema = z.strictObject({
  ...poolSections({ adminPort: 8002 }),
  decode: z.strictObject({
    linkBytesPerSecond: field
      .number({
        min: 1,
        max: 1e15,
        description:
          "What one worker's network link carries for KV transfers; 50e9 is a 400 Gb/s NIC.",
      })
      .default(50e9),
    outputTokensDefault: field
      .integer({
        min: 1,
        unit: "tokens",
        description: "Answer tokens expected of a request without a limit.",
      })
      .default(512),
    handleLeaseMs: field
      .durationMs({
        min: 1,
        description:
          "How long prefill engines keep a handle's blocks; null takes the connector's (vLLM: 30 s).",
      })
      .nullable()
      .default(null),
  }),
});
