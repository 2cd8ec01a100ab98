import { tierWeightsFixed } from "@baton/domain";
import { field } from "@baton/service-host";
import { poolSections } from "@baton/service-wiring";
import { z } from "zod";

const weight = (description: string) => field.ratio({ description });

export const configSchema = z.strictObject({
  ...poolSections({ adminPort: 8001 }),
  prefill: z.strictObject({
    waitMsMax: field
      .durationMs({
        min: 1,
        description: "Longest predicted wait that a request is still placed with; beyond it 429.",
      })
      .default(120_000),
    tierWeightGpu: weight("What a token cached on the GPU is worth.").default(tierWeightsFixed.gpu),
    tierWeightHost: weight("What a token cached in host memory is worth.").default(
      tierWeightsFixed.host,
    ),
    tierWeightDisk: weight("What a token cached on disk is worth.").default(tierWeightsFixed.disk),
  }),
});
