import { fail, type Outcome, ok } from "@baton/kit";
import type { AnswerFacts, Connector, HandleFacts } from "./connector.ts";
import { prefillLegEdit } from "./prefill-leg.ts";

const member = "kv_transfer_params";

/** What vLLM's NixlConnector takes as "keep the blocks for a pull". */
const keepForPull =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}';

/**
 * vLLM NixlConnector, pull mode: prefill first, its answer is the handle, the decode engine reads the
 * blocks. vLLM from 0.22 on leases them for 30 s and the decode engine's heartbeats extend that;
 * older engines hold them 480 s, for which 30 s is safe too.
 */
export const nixlPull: Connector = {
  name: "nixl-pull",
  description:
    "vLLM NixlConnector: the decode engine pulls the prompt's KV from the prefill engine",
  legOrder: "prefill-then-decode",
  handleLeaseMs: 30_000,
  handleMember: member,
  prefillLeg: (route) =>
    prefillLegEdit(route, { remove: [member], append: [{ key: member, json: keepForPull }] }),
  decodeLeg: (handleJson) => ({
    remove: [member],
    append: [{ key: member, json: handleJson }],
  }),
  // One token: the pull is what frees the prefill engine, whatever comes after it.
  abandonLeg(route, handleJson) {
    const one = prefillLegEdit(route, {
      remove: [member],
      append: [{ key: member, json: handleJson }],
    });
    return {
      remove: one.remove,
      append: one.append.map((each) => (each.key === "stream" ? { ...each, json: "true" } : each)),
    };
  },
  checkAnswer,
};

/**
 * Each row is a way in which a real vLLM 0.32 decode engine dies, hangs, or answers wrong tokens with
 * HTTP 200 (recorded): null or missing block ids kill it; a missing request id hangs it and its
 * disconnect kills it; fewer blocks than the prompt needs kill it, more give wrong tokens.
 */
function checkAnswer(handle: unknown, facts: AnswerFacts): Outcome<HandleFacts, string> {
  if (typeof handle !== "object" || handle === null || Array.isArray(handle)) {
    return fail("the answer has no kv_transfer_params: is the engine started with a connector?");
  }
  const fields = handle as Record<string, unknown>;
  if (fields["do_remote_prefill"] !== true) return fail("do_remote_prefill is not true");
  for (const key of ["remote_engine_id", "remote_request_id", "remote_host"]) {
    const value = fields[key];
    if (typeof value !== "string" || value === "") return fail(`${key} is missing`);
  }
  const port = fields["remote_port"];
  if (typeof port !== "number" && typeof port !== "string") return fail("remote_port is missing");
  if (fields["transfer_mode"] === "push") return fail("transfer_mode is push");
  const blocks = countBlocks(fields["remote_block_ids"]);
  if (!blocks.ok) return blocks;
  const tokens = checkTokens(fields["remote_num_tokens"], facts);
  if (!tokens.ok) return tokens;
  if (facts.promptTokens !== null && facts.blockSizeTokens !== null) {
    const needed = Math.ceil(facts.promptTokens / facts.blockSizeTokens);
    // Sliding-window groups are clipped, so only the largest group must cover the whole prompt.
    if (blocks.value !== needed) {
      return fail(`${blocks.value} blocks for a prompt that needs ${needed}`);
    }
  }
  return ok({ handleId: fields["remote_request_id"] as string });
}

/** Block ids are counted and never read: other engines of this protocol send them as text. */
function countBlocks(ids: unknown): Outcome<number, string> {
  if (!Array.isArray(ids) || ids.length === 0) return fail("remote_block_ids is empty");
  if (!ids.some(Array.isArray)) return ok(ids.length);
  if (!ids.every(Array.isArray)) return fail("remote_block_ids mixes groups and ids");
  const most = Math.max(...ids.map((group: unknown[]) => group.length));
  return most === 0 ? fail("remote_block_ids holds only empty groups") : ok(most);
}

function checkTokens(count: unknown, facts: AnswerFacts): Outcome<void, string> {
  if (count === undefined || count === null || facts.promptTokens === null) return ok(undefined);
  if (count === facts.promptTokens) return ok(undefined);
  return fail(`remote_num_tokens is ${count}, usage says ${facts.promptTokens}`);
}
