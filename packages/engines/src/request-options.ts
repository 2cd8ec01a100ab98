import type { EngineCall } from "@baton/ports";
import type { Dispatcher } from "undici";

/** Above it, chunks go out one by one; below, one copy is cheaper than more system calls. */
const concatBytesMax = 65_536;

/** Set by the client or by undici; a caller's value would contradict it, or leak a credential. */
const ownHeaders = new Set([
  "authorization",
  "connection",
  "content-length",
  "expect",
  "host",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
]);

export function toDispatchOptions(
  call: EngineCall,
  bearerToken: string | undefined,
): Dispatcher.DispatchOptions {
  const headers: string[] = [];
  for (const name in call.headers) {
    if (!ownHeaders.has(name)) headers.push(name, call.headers[name]!);
  }
  if (bearerToken !== undefined) headers.push("authorization", `Bearer ${bearerToken}`);
  let lengthBytes = 0;
  for (const chunk of call.body) lengthBytes += chunk.length;
  const body = toBody(call.body, lengthBytes);
  if (Array.isArray(body)) headers.push("content-length", String(lengthBytes));
  return {
    path: call.path,
    method: call.method,
    headers,
    // undici takes any iterable of chunks, which its types leave out.
    body: body as Uint8Array | null,
    headersTimeout: call.headersTimeoutMs,
    bodyTimeout: call.bodyTimeoutMs,
  };
}

function toBody(
  chunks: readonly Uint8Array[],
  lengthBytes: number,
): Uint8Array | readonly Uint8Array[] | null {
  if (lengthBytes === 0) return null;
  if (chunks.length === 1) return chunks[0]!;
  return lengthBytes < concatBytesMax ? Buffer.concat(chunks) : chunks;
}
