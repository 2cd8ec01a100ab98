import { Worker } from "node:worker_threads";
import { type BatonError, batonError } from "@baton/domain";
import { fail, type Outcome, ok } from "@baton/kit";
import type { Logger, Route } from "@baton/ports";
import { textOf } from "./tokenizer-folder.ts";
import type { TokenizeJob, WorkerData, WorkerMessage } from "./worker-messages.ts";

export interface WorkerPoolOptions {
  readonly folder: string;
  readonly threads: number;
  readonly queueRequestsMax: number;
  readonly queueBytesMax: number;
  readonly bodyBytesMax: number;
  readonly jobTimeoutMs: number;
  readonly threadHeapMb: number;
  readonly logger: Logger;
  /** Script of a thread. */
  readonly entry?: URL;
}

interface Pending {
  readonly job: TokenizeJob;
  settle(result: Outcome<Uint32Array, BatonError>): void;
}

interface Thread {
  readonly worker: Worker;
  state: "loading" | "ready" | "ending";
  current: Pending | null;
  timer: NodeJS.Timeout | null;
}

/** A thread that dies before it is ready is started again after this time; a ready one at once. */
const restartDelayMs = 5_000;

const entryDefault = new URL(
  import.meta.url.endsWith(".ts") ? "./tokenizer-worker.ts" : "./tokenizer-worker.js",
  import.meta.url,
);

/**
 * Threads that each hold the tokenizer and take one job at a time, first come first served. The queue
 * is bounded in requests and bytes. A thread that ends or takes longer than `jobTimeoutMs` costs its job
 * and is replaced; other jobs do not notice.
 */
export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #threads = new Set<Thread>();
  readonly #queue: Pending[] = [];
  readonly #restarts = new Set<NodeJS.Timeout>();
  #queueBytes = 0;
  #isClosed = false;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
  }

  /** Resolves when every thread has loaded, or with the first reason why one cannot. */
  async start(): Promise<Outcome<void, BatonError>> {
    const starts = Array.from({ length: this.#options.threads }, () => this.#startThread());
    for (const started of await Promise.all(starts)) {
      if (started !== null) {
        await this.close();
        return fail(batonError("BATON_TOKENIZER_FAILED", started));
      }
    }
    return ok(undefined);
  }

  /** `body` is copied: the copy moves to the thread, and the caller still has it to send on. */
  run(route: Route, body: Uint8Array): Promise<Outcome<Uint32Array, BatonError>> {
    const refusal = this.#refusal(body.length);
    if (refusal !== null) return Promise.resolve(failed(refusal));
    return new Promise((settle) => {
      this.#queue.push({ job: { route, body: new Uint8Array(body) }, settle });
      this.#queueBytes += body.length;
      this.#assign();
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const restart of this.#restarts) clearTimeout(restart);
    const threads = [...this.#threads];
    for (const pending of this.#queue.splice(0)) pending.settle(failed("the tokenizer is closed"));
    await Promise.all(threads.map((thread) => thread.worker.terminate()));
  }

  #refusal(bodyBytes: number): string | null {
    const { bodyBytesMax, queueRequestsMax, queueBytesMax } = this.#options;
    if (this.#isClosed) return "the tokenizer is closed";
    if (bodyBytes > bodyBytesMax) return `the body has more than ${bodyBytesMax} bytes`;
    if (this.#threads.size === 0) return "no tokenizer thread is up";
    if (this.#queue.length >= queueRequestsMax) {
      return `the tokenizer queue is full (${queueRequestsMax} requests)`;
    }
    if (this.#queueBytes + bodyBytes > queueBytesMax) {
      return `the tokenizer queue is full (${queueBytesMax} bytes)`;
    }
    return null;
  }

  /** Null when the thread is ready, otherwise why it is not. */
  #startThread(): Promise<string | null> {
    const workerData: WorkerData = { folder: this.#options.folder };
    const resourceLimits = { maxOldGenerationSizeMb: this.#options.threadHeapMb };
    const worker = new Worker(this.#options.entry ?? entryDefault, { workerData, resourceLimits });
    const thread: Thread = { worker, state: "loading", current: null, timer: null };
    this.#threads.add(thread);
    let lastError = "no reason given";
    return new Promise((resolve) => {
      worker.on("message", (message: WorkerMessage) => {
        if (message.kind === "ready") resolve(null);
        if (message.kind === "unusable") lastError = message.reason;
        this.#onMessage(thread, message);
      });
      worker.on("error", (error) => {
        lastError = textOf(error);
      });
      worker.on("exit", () => {
        resolve(lastError);
        this.#onExit(thread, lastError);
      });
    });
  }

  #onMessage(thread: Thread, message: WorkerMessage): void {
    switch (message.kind) {
      case "ready":
        thread.state = "ready";
        break;
      case "unusable":
        // It ends by itself, which is handled as every other end.
        return;
      case "tokens":
        this.#finish(thread, ok(message.tokenIds));
        break;
      case "failed":
        this.#finish(thread, failed(message.reason));
        break;
    }
    this.#assign();
  }

  #onExit(thread: Thread, reason: string): void {
    this.#threads.delete(thread);
    const wasReady = thread.state !== "loading";
    this.#finish(thread, failed(`the tokenizer thread died: ${reason}`));
    if (this.#isClosed) return;
    this.#options.logger.error(
      { reason, wasReady },
      "tokenizer thread ended, another one replaces it",
    );
    if (wasReady) void this.#startThread();
    else {
      const restart = setTimeout(() => {
        this.#restarts.delete(restart);
        void this.#startThread();
      }, restartDelayMs);
      restart.unref();
      this.#restarts.add(restart);
    }
    if (this.#threads.size > 0) return;
    for (const pending of this.#queue.splice(0))
      pending.settle(failed("no tokenizer thread is up"));
    this.#queueBytes = 0;
  }

  #assign(): void {
    for (const thread of this.#threads) {
      if (thread.state !== "ready" || thread.current !== null) continue;
      const pending = this.#queue.shift();
      if (pending === undefined) return;
      this.#queueBytes -= pending.job.body.length;
      thread.current = pending;
      thread.timer = setTimeout(() => this.#onTimeout(thread), this.#options.jobTimeoutMs);
      thread.worker.postMessage(pending.job, [pending.job.body.buffer as ArrayBuffer]);
    }
  }

  #onTimeout(thread: Thread): void {
    const { jobTimeoutMs } = this.#options;
    // It is in the middle of the job and cannot be asked to stop.
    thread.state = "ending";
    this.#finish(thread, failed(`tokenizing took longer than ${jobTimeoutMs} ms`));
    void thread.worker.terminate();
  }

  #finish(thread: Thread, result: Outcome<Uint32Array, BatonError>): void {
    if (thread.timer !== null) clearTimeout(thread.timer);
    const pending = thread.current;
    thread.timer = null;
    thread.current = null;
    pending?.settle(result);
  }
}

function failed(reason: string): Outcome<never, BatonError> {
  return fail(batonError("BATON_TOKENIZER_FAILED", reason));
}
