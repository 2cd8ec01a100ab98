import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { findMember, memberValue, scanTopLevel } from "./json-scan.ts";
import { readUsage, type Usage } from "./usage.ts";

export interface PrefillAnswer {
  /** JSON text of `kv_transfer_params`, a view into the answer; null when absent or JSON null. */
  readonly kvTransferParams: Uint8Array | null;
  readonly usage: Usage | null;
}

/**
 * The two things Baton needs of a prefill leg's answer. The handle stays raw bytes: ids and hashes in
 * it may be integers above 2^53. BATON_ENGINE_GARBAGE when the answer is not a JSON object.
 */
export function readPrefillAnswer(body: Uint8Array): Outcome<PrefillAnswer, BatonError> {
  const scanned = scanTopLevel(body);
  if (!scanned.ok) {
    const { message, atByte } = scanned.error;
    return fail(
      batonError("BATON_ENGINE_GARBAGE", `The prefill answer: ${message} at byte ${atByte}.`),
    );
  }
  const givenValue = (key: string): Uint8Array | null => {
    const member = findMember(scanned.value, key);
    return member === null || body[member.valueStart] === 0x6e ? null : memberValue(body, member);
  };
  const usage = givenValue("usage");
  return ok({
    kvTransferParams: givenValue("kv_transfer_params"),
    usage: usage === null ? null : readUsage(usage),
  });
}
