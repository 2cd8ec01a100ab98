import type { BatonError } from "@baton/domain";
import { invariant } from "@baton/kit";
import type { ResponseSink } from "../http.ts";

/** A client that keeps what it gets, as strict about the order of calls as the HTTP server's sink. */
export class RecordingSink implements ResponseSink {
  state: "fresh" | "streaming" | "ended" | "destroyed" | "left" = "fresh";
  status: number | null = null;
  headers: Readonly<Record<string, string>> = {};
  readonly chunks: Uint8Array[] = [];
  /** The error that was the whole answer. */
  lastError: BatonError | null = null;
  /** Makes `write` say that no more fits; until `drain`. */
  isFull = false;
  #onClose: (() => void) | null = null;
  #onDrain: (() => void) | null = null;

  get text(): string {
    const decoder = new TextDecoder();
    return this.chunks.map((chunk) => decoder.decode(chunk, { stream: true })).join("");
  }

  /** The answer is complete, cut, or nobody waits for it any more. */
  get isOver(): boolean {
    return this.state !== "fresh" && this.state !== "streaming";
  }

  head(status: number, headers: Readonly<Record<string, string>>): void {
    if (this.state === "left") return;
    invariant(this.state === "fresh", `a head after ${this.state}`);
    this.state = "streaming";
    this.status = status;
    this.headers = headers;
  }

  write(bytes: Uint8Array): boolean {
    if (this.state === "left") return true;
    invariant(this.state === "streaming", `bytes after ${this.state}`);
    this.chunks.push(new Uint8Array(bytes));
    return !this.isFull;
  }

  end(): void {
    if (this.state === "left") return;
    invariant(this.state === "streaming", `an end after ${this.state}`);
    this.state = "ended";
  }

  whole(
    status: number,
    headers: Readonly<Record<string, string>>,
    body: Uint8Array | string,
  ): void {
    if (this.state === "left") return;
    invariant(this.state === "fresh", `a whole answer after ${this.state}`);
    this.state = "ended";
    this.status = status;
    this.headers = headers;
    this.chunks.push(
      typeof body === "string" ? new TextEncoder().encode(body) : new Uint8Array(body),
    );
  }

  error(error: BatonError): void {
    if (this.state === "left") return;
    invariant(this.state === "fresh", `an error after ${this.state}`);
    this.state = "ended";
    this.lastError = error;
  }

  destroy(): void {
    if (this.state === "left") return;
    invariant(this.state === "streaming", `a cut after ${this.state}`);
    this.state = "destroyed";
  }

  onClose(listener: () => void): void {
    invariant(this.#onClose === null, "one listener for the close");
    this.#onClose = listener;
  }

  onDrain(listener: () => void): void {
    invariant(this.#onDrain === null, "one listener for the drain");
    this.#onDrain = listener;
  }

  /** The client goes away; after the end nobody is told. */
  leave(): void {
    if (this.isOver) return;
    this.state = "left";
    this.#onClose?.();
  }

  /** The client has taken what was written. */
  drain(): void {
    this.isFull = false;
    this.#onDrain?.();
  }
}
