import type { ErrorCode } from "@baton/domain";
import { headers, type MsgHdrs } from "nats";
import type { Refusal, WireReply } from "./wire.ts";

const errorHeader = "Baton-Error";
const errorTextMax = 512;
/** `NATS/1.0`, the name of the header, the code and the line breaks take less. */
const headerOverheadBytes = 80;
const noPayload = new Uint8Array(0);

export interface ReplySender {
  maxPayloadBytes(): number;
  reply(subject: string, payload: Uint8Array, headers: MsgHdrs | null): void;
}

/** Where a NATS request is answered. Payloads travel without headers; a refusal is one header. */
export class NatsReply implements WireReply {
  readonly #sender: ReplySender;
  readonly #subject: string;

  constructor(sender: ReplySender, subject: string) {
    this.#sender = sender;
    this.#subject = subject;
  }

  answer(payload: Uint8Array): void {
    this.#sender.reply(this.#subject, payload, null);
  }

  refuse(refusal: Refusal): void {
    const room = this.#sender.maxPayloadBytes() - headerOverheadBytes;
    const fields = headers();
    fields.set(errorHeader, `${refusal.code} ${oneLine(refusal.message, room)}`);
    this.#sender.reply(this.#subject, noPayload, fields);
  }
}

/** What an answer with headers says: our refusal, or the server's status 503 for "nobody there". */
export function readRefusal(fields: MsgHdrs): { code: ErrorCode; detail: string | null } {
  if (fields.code === 503) return { code: "BATON_BUS_NO_RESPONDER", detail: null };
  const text = fields.get(errorHeader);
  const [code] = text.split(" ", 1);
  const detail = text.slice((code?.length ?? 0) + 1);
  if (code === "BATON_SATURATED") return { code, detail };
  return { code: "BATON_BUS_HANDLER_FAILED", detail: detail || "an answer with unknown headers" };
}

/**
 * A header line ends at a line break, and the text comes from whatever a handler threw. Characters
 * outside ASCII become `?`, so that a character is a byte.
 */
function oneLine(text: string, bytesMax: number): string {
  return text.replace(/[^ -~]+/g, "?").slice(0, Math.max(0, Math.min(bytesMax, errorTextMax)));
}
