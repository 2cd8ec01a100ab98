import { batonError } from "@baton/domain";
import { fail } from "@baton/kit";
import type { EngineClient } from "@baton/ports";
import type { FetchTokenize } from "@baton/tokenization";
import type { ModelDirectory } from "./model-directory.ts";

const answerBytesMax = 64 * 1024 * 1024;

/** `/tokenize` of the model's workers that are up, one after the other. */
export function createEngineTokenizer(
  directory: () => ModelDirectory,
  engineClient: EngineClient,
  timeoutMs: number,
): FetchTokenize {
  let turn = 0;
  return async (model, body) => {
    const workers = directory().workersUp(model);
    const worker = workers[turn++ % Math.max(1, workers.length)];
    if (worker === undefined) {
      return fail(batonError("BATON_TOKENIZER_FAILED", `no worker of ${model} is up to tokenise`));
    }
    const { workerId, url } = worker;
    const call = { workerId, url, method: "POST", path: "/tokenize", body, timeoutMs } as const;
    return engineClient.fetchText({ ...call, bodyLimitBytes: answerBytesMax });
  };
}
