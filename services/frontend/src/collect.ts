import { type BatonError, batonError } from "@baton/domain";
import { joinChunks } from "@baton/openai-api";
import type { EngineHandler } from "@baton/ports";

/** A prefill answer is a handle and one token; a refusal is a message. */
const bytesMax = 16 * 1024 * 1024;

export interface Collected {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

/** Gathers a whole answer, then calls `done` once. */
export function collect(
  where: string,
  done: (
    result:
      | { readonly ok: true; readonly value: Collected }
      | { readonly ok: false; readonly error: BatonError },
  ) => void,
): EngineHandler {
  let status = 0;
  let headers: Readonly<Record<string, string>> = {};
  let size = 0;
  const chunks: Uint8Array[] = [];
  return {
    onHead(headStatus, headHeaders) {
      status = headStatus;
      headers = headHeaders;
    },
    onData(bytes) {
      size += bytes.length;
      // Not `slice`, which on a Buffer shares.
      if (size <= bytesMax) chunks.push(new Uint8Array(bytes));
    },
    onEnd() {
      if (size <= bytesMax) {
        done({ ok: true, value: { status, headers, body: joinChunks(chunks) } });
        return;
      }
      const message = `${where} sent ${size} bytes where at most ${bytesMax} make sense`;
      done({ ok: false, error: batonError("BATON_ENGINE_GARBAGE", message) });
    },
    onFault({ error }) {
      done({ ok: false, error });
    },
  };
}
