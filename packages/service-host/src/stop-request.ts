import type { BatonError } from "@baton/domain";
import { exitOnSignal, type StopSignal } from "./exit-code.ts";
import type { HostProcess } from "./host-process.ts";

/** Why a service ends. */
export type StopReason =
  | { readonly kind: "signal"; readonly signal: StopSignal }
  | { readonly kind: "parent-gone" }
  | { readonly kind: "asked"; readonly error: BatonError | null };

const signals = Object.keys(exitOnSignal) as StopSignal[];

/**
 * The one request to stop: the first of a signal, the parent's death, and `ask`. What comes after
 * it is ignored, but for a second signal.
 */
export class StopRequest {
  /** Resolves once, with the first reason. */
  readonly reason: Promise<StopReason>;
  readonly #host: HostProcess;
  readonly #onReason: (reason: StopReason) => void;
  readonly #abort = new AbortController();
  readonly #undo: (() => void)[] = [];

  constructor(
    host: HostProcess,
    options: {
      readonly dieWithParent: boolean;
      readonly onReason: (reason: StopReason) => void;
      readonly onSecondSignal: (signal: StopSignal) => void;
    },
  ) {
    this.#host = host;
    let settle: (reason: StopReason) => void = () => {};
    this.reason = new Promise((resolve) => {
      settle = resolve;
    });
    this.#onReason = (reason) => {
      options.onReason(reason);
      settle(reason);
    };
    for (const signal of signals) {
      this.#listen(host.events, signal, () => {
        if (this.#abort.signal.aborted) options.onSecondSignal(signal);
        else this.#stop({ kind: "signal", signal });
      });
    }
    this.#watchParent(options.dieWithParent);
  }

  /** Aborts when the service is to stop. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  ask(error: BatonError | null): void {
    this.#stop({ kind: "asked", error });
  }

  /** Stops listening, so that nothing here keeps the event loop alive. */
  close(): void {
    for (const undo of this.#undo.splice(0)) undo();
  }

  /** A parent's death closes its IPC channel and its end of our standard input. */
  #watchParent(watchStdin: boolean): void {
    const gone = () => this.#stop({ kind: "parent-gone" });
    if (this.#host.hasChannel) this.#listen(this.#host.events, "disconnect", gone);
    if (!watchStdin) return;
    const stdin = this.#host.stdin();
    for (const event of ["end", "close", "error"]) this.#listen(stdin, event, gone);
    stdin.resume();
    this.#undo.push(() => stdin.destroy());
  }

  #stop(reason: StopReason): void {
    if (this.#abort.signal.aborted) return;
    this.#abort.abort();
    this.#onReason(reason);
  }

  #listen(emitter: HostProcess["events"], event: string, listener: () => void): void {
    emitter.on(event, listener);
    this.#undo.push(() => emitter.off(event, listener));
  }
}
