import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import { Decoder, Encoder } from "@msgpack/msgpack";
import type { Shape } from "./shape.ts";

/** A change of major is refused by the other side; a minor only adds fields. */
export const protocolMajor = 1;
export const protocolMinor = 0;

export interface MessageType<T> {
  readonly name: string;
  encode(value: T): Uint8Array;
  /** Errors: BATON_PROTOCOL_MAJOR, BATON_PROTOCOL_MALFORMED, with the place in the message. */
  decode(payload: Uint8Array): Outcome<T, BatonError>;
}

/** The value type of a message, e.g. `MessageOf<typeof place>`. */
export type MessageOf<M> = M extends MessageType<infer T> ? T : never;

const encoder = new Encoder({ ignoreUndefined: true });
const decoder = new Decoder({ maxStrLength: 1 << 20, maxBinLength: 1 << 24 });

/** Envelope: `{v: [major, minor], t: name, b: body}`. */
export function message<T>(name: string, shape: Shape<T>): MessageType<T> {
  return {
    name,
    encode: (value) =>
      encoder.encode({ v: [protocolMajor, protocolMinor], t: name, b: shape.write(value) }),
    decode(payload) {
      const envelope = readEnvelope(name, payload);
      if (!envelope.ok) return envelope;
      const body = shape.read(envelope.value, "");
      return body.ok ? body : malformed(name, body.error);
    },
  };
}

function readEnvelope(name: string, payload: Uint8Array): Outcome<unknown, BatonError> {
  let envelope: unknown;
  try {
    envelope = decoder.decode(payload);
  } catch (cause) {
    return malformed(name, `not msgpack: ${cause instanceof Error ? cause.message : cause}`);
  }
  if (typeof envelope !== "object" || envelope === null) return malformed(name, "not a map");
  const { v, t, b } = envelope as { v?: unknown; t?: unknown; b?: unknown };
  const major = Array.isArray(v) ? v[0] : undefined;
  if (typeof major !== "number") return malformed(name, "v: no version");
  if (major !== protocolMajor) {
    return fail(
      batonError(
        "BATON_PROTOCOL_MAJOR",
        `message ${name} has major version ${major}, this build speaks ${protocolMajor}`,
      ),
    );
  }
  if (t !== name) return malformed(name, `t: is ${JSON.stringify(t)}`);
  return ok(b);
}

function malformed(name: string, detail: string): Outcome<never, BatonError> {
  return fail(batonError("BATON_PROTOCOL_MALFORMED", `message ${name}: ${detail}`));
}
