import { type MemberSpan, memberValue, scanTopLevel } from "./json-scan.ts";
import { joinChunks, type Splice, spliceMembers } from "./json-splice.ts";

/**
 * Body fields that say where KV lies, which rank runs a request, or under which id an engine knows
 * it. With one of them a client could make an engine read from a host of its choosing, or read and
 * abort what belongs to others; only Baton sets them.
 */
export const clientFieldsStripped: ReadonlySet<string> = new Set([
  // vLLM
  "kv_transfer_params",
  "ec_transfer_params",
  "request_id",
  // SGLang
  "bootstrap_host",
  "bootstrap_port",
  "bootstrap_room",
  "bootstrap_info",
  "rid",
  "data_parallel_rank",
  "routed_dp_rank",
  "disagg_prefill_dp_rank",
  "remote_dp_rank_override",
  // TensorRT-LLM
  "disaggregated_params",
  "disagg_request_id",
  // Dynamo, and routers that take their configuration from a request
  "nvext",
  "router_config_override",
]);

/** Sub-fields of `vllm_xargs` land in the same place as `kv_transfer_params` inside vLLM. */
const xargsPrefixesStripped = ["kv_", "ec_"];

/**
 * What to splice out of a client's body before anything goes to an engine; combine it with a leg's
 * own changes. `vllm_xargs` keeps its harmless sub-fields, byte for byte.
 */
export function strippedBodyFields(body: Uint8Array, members: readonly MemberSpan[]): Splice {
  const remove = new Set<string>();
  for (const { key } of members) if (clientFieldsStripped.has(key)) remove.add(key);
  const xargs = members.filter(({ key }) => key === "vllm_xargs");
  const last = xargs.at(-1);
  if (last === undefined || body[last.valueStart] !== 0x7b) return { remove, append: [] };
  const value = memberValue(body, last);
  const scanned = scanTopLevel(value);
  if (!scanned.ok) {
    // What cannot be read here is not passed on.
    remove.add("vllm_xargs");
    return { remove, append: [] };
  }
  const innerRemove = new Set(scanned.value.map(({ key }) => key).filter(isXargStripped));
  if (innerRemove.size === 0 && xargs.length === 1) return { remove, append: [] };
  remove.add("vllm_xargs");
  const kept = spliceMembers(value, scanned.value, { remove: innerRemove, append: [] });
  return { remove, append: [{ key: "vllm_xargs", value: joinChunks(kept) }] };
}

function isXargStripped(key: string): boolean {
  return (
    clientFieldsStripped.has(key) || xargsPrefixesStripped.some((each) => key.startsWith(each))
  );
}
