/**
 * The `kv_transfer_params` of a decode leg, read as loosely as vLLM reads them: what is missing is
 * null, and the engine finds out later what that leads to.
 */
export interface RemoteKv {
  readonly engineId: string | null;
  readonly requestId: string | null;
  readonly host: string | null;
  readonly port: number | null;
  /** Of the one attention group; null when absent or null. */
  readonly blockIds: readonly number[] | null;
  /** What the prefill engine had cached; the decode engine reports it as its own. */
  readonly prefillCachedTokens: number | null;
}

/** Null when the request does not ask for remote KV. */
export function readRemoteKv(params: unknown): RemoteKv | null {
  const fields = asRecord(params);
  if (fields === null || fields["do_remote_prefill"] !== true) return null;
  const text = (key: string): string | null => {
    const value = fields[key];
    return typeof value === "string" && value !== "" ? value : null;
  };
  const cached = fields["remote_prefill_cached_tokens"];
  const port = Number(fields["remote_port"]);
  return {
    engineId: text("remote_engine_id"),
    requestId: text("remote_request_id"),
    host: text("remote_host"),
    port: Number.isInteger(port) && port > 0 ? port : null,
    blockIds: readBlockIds(fields["remote_block_ids"]),
    prefillCachedTokens: typeof cached === "number" ? cached : null,
  };
}

export function wantsExport(params: unknown): boolean {
  return asRecord(params)?.["do_remote_decode"] === true;
}

/** A list of groups, of which this engine has one, or the flat list of older engines. */
function readBlockIds(value: unknown): readonly number[] | null {
  if (!Array.isArray(value)) return null;
  const ids: unknown[] = Array.isArray(value[0]) ? value[0] : value;
  return ids.every((id) => Number.isInteger(id)) ? (ids as number[]) : null;
}

function asRecord(value: unknown): Record<string, unknown> | null {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : null;
}

export interface ExportedKv {
  readonly blockIds: readonly number[];
  readonly engineId: string;
  readonly requestId: string;
  readonly host: string;
  readonly port: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
}

/** The handle of a prefill answer: the keys and their order of vLLM 0.32's NIXL connector. */
export function exportedKvJson(exported: ExportedKv): string {
  return JSON.stringify({
    do_remote_prefill: true,
    do_remote_decode: false,
    remote_block_ids: [exported.blockIds],
    remote_engine_id: exported.engineId,
    remote_request_id: exported.requestId,
    remote_host: exported.host,
    remote_port: exported.port,
    tp_size: 1,
    dcp_size: 1,
    pp_size: 1,
    remote_num_tokens: exported.promptTokens,
    remote_blocks_expiry_time: null,
    transfer_mode: "pull",
    remote_prefill_cached_tokens: exported.cachedTokens,
  });
}
