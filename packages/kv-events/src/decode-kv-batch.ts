import type { KvBatch, KvEvent } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { count, decodeEvent, type SkipCounts } from "./decode-event.ts";
import { KnownTexts } from "./known-text.ts";
import { eventsPerBatchMax, payloadBytesMax } from "./limits.ts";
import { MsgpackReader } from "./msgpack-reader.ts";

export interface KvPayloadFault {
  readonly reason:
    | "truncated"
    | "reserved_byte"
    | "not_a_batch"
    | "trailing_bytes"
    | "too_many_events"
    | "too_large";
  /** Where in the payload it was found. */
  readonly offsetBytes: number;
}

const batchKeys = new KnownTexts(["ts", "events", "data_parallel_rank", "attn_dp_rank"]);

interface BatchDraft {
  engineTimeS: number | null;
  dpRank: number | null;
  events: KvEvent[] | null;
  readonly skipped: SkipCounts;
}

/**
 * Reads the payload of one message of an engine's KV event stream: every layout of vLLM 0.9 to
 * 0.32, SGLang and TensorRT-LLM, told apart by shape. The result owns its arrays; `payload` is not
 * kept.
 *
 * Cost: O(bytes). Allocates at most about 12 bytes for each payload byte; counts announced by the
 * payload are checked against its length and against the caps before anything is allocated. An
 * event that cannot be read is stepped over and counted in `skipped`; only a payload whose
 * structure breaks, or that is no batch, is an error. Never throws on any input.
 */
export function decodeKvBatch(payload: Uint8Array): Outcome<KvBatch, KvPayloadFault> {
  if (payload.length > payloadBytesMax) return fail({ reason: "too_large", offsetBytes: 0 });
  const reader = new MsgpackReader(payload);
  const draft: BatchDraft = { engineTimeS: null, dpRank: null, events: null, skipped: {} };
  const fault = reader.isMap() ? readBatchMap(reader, draft) : readBatchArray(reader, draft);
  const broken = reader.fault;
  if (broken === "truncated" || broken === "reserved_byte") {
    return fail({ reason: broken, offsetBytes: reader.at });
  }
  if (broken !== null || fault !== null) {
    return fail({ reason: fault ?? "not_a_batch", offsetBytes: reader.at });
  }
  const { engineTimeS, dpRank, events, skipped } = draft;
  if (engineTimeS === null || events === null) {
    return fail({ reason: "not_a_batch", offsetBytes: 0 });
  }
  if (reader.at < reader.end) return fail({ reason: "trailing_bytes", offsetBytes: reader.at });
  return ok({ engineTimeS, dpRank, events, skipped });
}

type BatchFault = "not_a_batch" | "too_many_events" | null;

function readBatchArray(reader: MsgpackReader, draft: BatchDraft): BatchFault {
  const length = reader.arrayHeader();
  if (reader.fault !== null || length < 2) return "not_a_batch";
  draft.engineTimeS = reader.number();
  if (reader.fault !== null) return "not_a_batch";
  const fault = readEvents(reader, draft);
  if (fault !== null) return fault;
  if (length > 2) readRank(reader, draft);
  for (let left = length - 3; left > 0 && reader.fault === null; left--) {
    reader.skip();
    count(draft.skipped, "extra_element", 1);
  }
  return null;
}

function readBatchMap(reader: MsgpackReader, draft: BatchDraft): BatchFault {
  const pairs = reader.mapHeader();
  for (let index = 0; index < pairs && reader.fault === null; index++) {
    const key = batchKeys.read(reader);
    if (reader.fault !== null) break;
    if (key === "ts") draft.engineTimeS = reader.number();
    else if (key === "events") {
      const fault = draft.events === null ? readEvents(reader, draft) : "not_a_batch";
      if (fault !== null) return fault;
    } else if (key !== null) readRank(reader, draft);
    else {
      reader.skip();
      count(draft.skipped, "unknown_key", 1);
    }
  }
  return null;
}

function readEvents(reader: MsgpackReader, draft: BatchDraft): BatchFault {
  const length = reader.arrayHeader();
  if (reader.fault !== null) return "not_a_batch";
  if (length > eventsPerBatchMax) return "too_many_events";
  const events: KvEvent[] = [];
  for (let index = 0; index < length && reader.fault === null; index++) {
    const event = decodeEvent(reader, draft.skipped);
    if (event !== null) events.push(event);
  }
  draft.events = events;
  return null;
}

/** A rank that is no small integer does not spoil the events. */
function readRank(reader: MsgpackReader, draft: BatchDraft): void {
  if (reader.takeNil()) return;
  const start = reader.at;
  draft.dpRank = reader.uint32();
  if (reader.fault !== "type") return;
  reader.fault = null;
  reader.at = start;
  reader.skip();
  draft.dpRank = null;
  count(draft.skipped, "bad_rank", 1);
}
