import { hashCount, hashListToBytes } from "@baton/kit";
import { hashBlocks, hashesPerPlanMax, namespaceRoot } from "@baton/kv-blocks";
import type { GenerateRequest } from "@baton/openai-api";
import type { ClientRequest } from "@baton/ports";
import type { FrontendPorts } from "./settings.ts";

/** What schedulers are told of a prompt: counts and hashes, never its text or tokens. */
export interface Prompt {
  readonly promptTokens: number | null;
  readonly promptBytes: number;
  readonly hashSets: readonly { readonly blockSizeTokens: number; readonly hashes: Uint8Array }[];
}

/** Tokens once, hashes once per index block size in use. Counts why there is no overlap knowledge. */
export async function readPrompt(
  request: ClientRequest,
  parsed: GenerateRequest,
  blockSizes: readonly number[],
  ports: FrontendPorts,
): Promise<Prompt> {
  const { promptBytes } = parsed;
  const tokenIds = parsed.promptTokenIds ?? (await tokenize(request, parsed, ports));
  if (tokenIds === null) return { promptTokens: null, promptBytes, hashSets: [] };
  if (parsed.promptTokenIds !== null) counted(ports, "client", tokenIds.length);
  const { model, cacheSalt } = parsed;
  const root = namespaceRoot({ model, loraName: null, cacheSalt });
  const hashSets = blockSizes.map((blockSizeTokens) => {
    const hashes = hashBlocks(tokenIds, blockSizeTokens, root);
    const isCut = Math.floor(tokenIds.length / blockSizeTokens) > hashesPerPlanMax;
    if (isCut) ports.metrics.counter("baton_frontend_hashes_cut_total").add();
    return { blockSizeTokens, hashes: hashListToBytes(hashes), count: hashCount(hashes) };
  });
  if (blockSizes.length === 0) without(ports, "no index");
  else if (hashSets.every((set) => set.count === 0)) without(ports, "shorter than a block");
  return {
    promptTokens: tokenIds.length,
    promptBytes,
    hashSets: hashSets.map(({ blockSizeTokens, hashes }) => ({ blockSizeTokens, hashes })),
  };
}

async function tokenize(
  request: ClientRequest,
  parsed: GenerateRequest,
  ports: FrontendPorts,
): Promise<Uint32Array | null> {
  const { route, body } = request;
  const tokenized = await ports.tokenizer.tokenize({ model: parsed.model, route, body });
  if (tokenized === null) {
    without(ports, "tokenizer off");
    return null;
  }
  if (!tokenized.ok) {
    without(ports, "tokenizer failed");
    const { requestId } = request;
    ports.logger.warn({ requestId, problem: tokenized.error.message }, "prompt not tokenised");
    return null;
  }
  counted(ports, tokenized.value.source, tokenized.value.tokenIds.length);
  return tokenized.value.tokenIds;
}

function counted(ports: FrontendPorts, source: string, tokens: number): void {
  ports.metrics.counter("baton_frontend_prompt_tokens_total", { source }).add(tokens);
}

function without(ports: FrontendPorts, reason: string): void {
  ports.metrics.counter("baton_frontend_without_overlap_total", { reason }).add();
}
