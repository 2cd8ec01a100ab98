import type { IncomingMessage } from "node:http";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";

export interface BodyLimits {
  readonly bodyLimitBytes: number;
  readonly bodiesBytesMax: number;
}

/** One request's share of the memory for bodies. */
export interface BodyShare {
  /** Null when the client went away, which needs no answer. */
  read(request: IncomingMessage): Promise<Outcome<Buffer, BatonError> | null>;
  /** Call once, when the request has ended. */
  release(): void;
}

/**
 * Reads bodies whole, as bytes, up to a limit each and a limit for all that are held. A body that is
 * refused is not kept; what still comes of it is dropped by node:http once the answer is sent, so
 * that the client gets to read it.
 */
export class BodyReader {
  readonly #limits: BodyLimits;
  #heldBytes = 0;

  constructor(limits: BodyLimits) {
    this.#limits = limits;
  }

  get heldBytes(): number {
    return this.#heldBytes;
  }

  open(): BodyShare {
    let ownBytes = 0;
    const add = (bytes: number): void => {
      ownBytes += bytes;
      this.#heldBytes += bytes;
    };
    return {
      read: (request) => this.#read(request, add),
      release: () => add(-ownBytes),
    };
  }

  #read(
    request: IncomingMessage,
    add: (bytes: number) => void,
  ): Promise<Outcome<Buffer, BatonError> | null> {
    const refusal = this.#refuseByHeaders(request);
    if (refusal !== null) return Promise.resolve(fail(refusal));
    return new Promise((resolve) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      const finish = (result: Outcome<Buffer, BatonError> | null): void => {
        request.off("data", onData).off("end", onEnd).off("close", onClose);
        resolve(result);
      };
      const onData = (chunk: Buffer): void => {
        bytes += chunk.length;
        add(chunk.length);
        chunks.push(chunk);
        const problem = this.#refuseBySize(bytes);
        if (problem === null) return;
        finish(fail(problem));
        request.resume();
      };
      // A copy also lets go of the larger buffers that small chunks are views of.
      const onEnd = (): void => finish(ok(Buffer.concat(chunks, bytes)));
      const onClose = (): void => finish(null);
      request.on("data", onData).on("end", onEnd).on("close", onClose);
    });
  }

  #refuseByHeaders(request: IncomingMessage): BatonError | null {
    const { "content-type": type, "content-encoding": encoding } = request.headers;
    const length = request.headers["content-length"];
    // Clients that send no type mean JSON too.
    if (type !== undefined && !/^application\/json *(;|$)/i.test(type)) {
      const message = `Unsupported Content-Type '${type}': send application/json.`;
      return batonError("BATON_BAD_REQUEST", message);
    }
    if (encoding !== undefined && encoding !== "identity") {
      const message = `Unsupported Content-Encoding '${encoding}': send the body as it is.`;
      return batonError("BATON_BAD_REQUEST", message);
    }
    return length === undefined ? null : this.#refuseBySize(Number(length));
  }

  #refuseBySize(bytes: number): BatonError | null {
    const { bodyLimitBytes, bodiesBytesMax } = this.#limits;
    if (bytes > bodyLimitBytes) {
      const message = `The body has ${bytes} bytes or more; the limit is ${bodyLimitBytes} bytes.`;
      return batonError("BATON_BODY_TOO_LARGE", message);
    }
    if (this.#heldBytes > bodiesBytesMax) {
      const message = `Bodies of ${bodiesBytesMax} bytes are held already.`;
      return batonError("BATON_SATURATED", message);
    }
    return null;
  }
}
