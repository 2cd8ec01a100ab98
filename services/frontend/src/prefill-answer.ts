import type { Connector } from "@baton/connectors";
import { type BatonError, batonError } from "@baton/domain";
import { readPrefillAnswer, relayHeaders } from "@baton/openai-api";
import type { Collected } from "./collect.ts";
import { judgeStatus, type Refusal } from "./leg.ts";

/** What a prefill leg's answer means. */
export type PrefillResult =
  | {
      readonly kind: "answered";
      /** The handle's JSON text as the engine sent it. */
      readonly json: string;
      readonly handleId: string;
      readonly cachedTokens: number | null;
      readonly promptTokens: number | null;
    }
  | { readonly kind: "refused"; readonly refusal: Refusal }
  | { readonly kind: "failed"; readonly error: BatonError; readonly isWorkerFault: boolean };

/** Bytes that are no UTF-8 would come out as others than they came in. */
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const utf8Lenient = new TextDecoder();

/** Reads the handle and has the connector check it before any decode engine sees it. */
export function readPrefillLeg(
  answer: Collected,
  leg: {
    /** Names the worker in errors. */
    readonly where: string;
    readonly connector: Connector;
    readonly blockSizeTokens: number | null;
  },
): PrefillResult {
  const { where, connector, blockSizeTokens } = leg;
  const { status, body } = answer;
  if (status !== 200) {
    const judged = judgeStatus(status, where, utf8Lenient.decode(body));
    if (judged.kind === "fault") return { ...judged, kind: "failed" };
    return { kind: "refused", refusal: { status, headers: relayHeaders(answer.headers), body } };
  }
  const failed = (problem: string): PrefillResult => {
    const error = batonError("BATON_ENGINE_GARBAGE", `${where}: ${problem}`);
    return { kind: "failed", error, isWorkerFault: true };
  };
  const read = readPrefillAnswer(body);
  if (!read.ok) return failed(read.error.message);
  const { kvTransferParams, usage } = read.value;
  const handle = parseHandle(kvTransferParams);
  if (handle === null) return failed(`${connector.handleMember} is not JSON`);
  const promptTokens = usage?.promptTokens ?? null;
  const checked = connector.checkAnswer(handle.value, { promptTokens, blockSizeTokens });
  if (!checked.ok) return failed(checked.error);
  return {
    kind: "answered",
    json: handle.json,
    handleId: checked.value.handleId,
    cachedTokens: usage?.cachedTokens ?? null,
    promptTokens,
  };
}

/** The scan that found the handle's ends leaves what is inside to whoever reads it. */
function parseHandle(
  bytes: Uint8Array | null,
): { readonly json: string; readonly value: unknown } | null {
  if (bytes === null) return { json: "null", value: null };
  try {
    const json = utf8.decode(bytes);
    return { json, value: JSON.parse(json) };
  } catch {
    return null;
  }
}
