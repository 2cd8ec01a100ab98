import type { IncomingMessage, ServerResponse } from "node:http";

const bodyBytesMax = 64 * 1024 * 1024;

/** uvicorn's headers: no Connection, no Keep-Alive. */
function addCommonHeaders(response: ServerResponse): void {
  response.removeHeader("connection");
  response.setHeader("server", "uvicorn");
  response.setHeader("vary", "Origin");
}

export function sendJson(response: ServerResponse, status: number, json: string): void {
  send(response, status, "application/json", Buffer.from(json));
}

export function send(
  response: ServerResponse,
  status: number,
  contentType: string | null,
  body: Uint8Array,
): void {
  if (response.headersSent || response.destroyed) return;
  response.statusCode = status;
  addCommonHeaders(response);
  response.setHeader("content-length", body.length);
  if (contentType !== null) response.setHeader("content-type", contentType);
  response.end(body);
}

/** Sends the head of an event stream at once, as the engine does before its first token. */
export function startStream(response: ServerResponse): void {
  addCommonHeaders(response);
  response.setHeader("content-type", "text/event-stream; charset=utf-8");
  response.setHeader("transfer-encoding", "chunked");
  response.flushHeaders();
}

/** Null when the body is over the limit or breaks off. */
export function readBody(request: IncomingMessage): Promise<Buffer | null> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    request.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > bodyBytesMax) {
        request.destroy();
        resolve(null);
      } else chunks.push(chunk);
    });
    request.on("end", () => resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)));
    request.on("close", () => resolve(null));
  });
}
