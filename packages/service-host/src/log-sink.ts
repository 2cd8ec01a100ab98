import { isatty } from "node:tty";
import { destination as openDestination } from "pino";

/** Where finished lines go. */
export interface LogSink {
  readonly colour: boolean;
  write(line: string): void;
  /** Lines dropped since the last call, told once the reader has caught up. */
  takeLost(): number;
  flush(): Promise<void>;
  flushNow(): void;
}

/** What a reader that does not keep up may hold back; further lines are dropped. */
const bufferedBytesMax = 8 * 1024 * 1024;

/** How long the last lines of a dying process wait for a reader that is full. */
const flushNowMsMax = 500;

export function openLogSink(options: {
  readonly destination?: number | { write(line: string): unknown };
  readonly colour?: boolean;
}): LogSink {
  const { destination = 1, colour } = options;
  if (typeof destination === "number") {
    const isTerminal = isatty(destination) && (process.env.NO_COLOR ?? "") === "";
    return new DescriptorSink(destination, colour ?? isTerminal);
  }
  return {
    colour: colour ?? false,
    write(line) {
      destination.write(line);
    },
    takeLost: () => 0,
    flush: () => Promise.resolve(),
    flushNow() {},
  };
}

/** Writes in the background. sonic-boom's own `flush` does not wait, so the waiting is here. */
class DescriptorSink implements LogSink {
  readonly colour: boolean;
  readonly #stream;
  #state: "idle" | "writing" | "gone" = "idle";
  #waiting: (() => void)[] = [];
  #giveUpMs = Number.POSITIVE_INFINITY;
  #dropped = 0;
  #lost = 0;

  constructor(descriptor: number, colour: boolean) {
    this.colour = colour;
    this.#stream = openDestination({
      fd: descriptor,
      sync: false,
      maxLength: bufferedBytesMax,
      retryEAGAIN: () => performance.now() < this.#giveUpMs,
    });
    this.#stream.on("drain", () => {
      this.#lost += this.#dropped;
      this.#dropped = 0;
      this.#settle("idle");
    });
    this.#stream.on("drop", () => {
      this.#dropped++;
    });
    // A full disk or a closed pipe: there is nowhere left to say so. The pipe never comes back.
    this.#stream.on("error", (error: NodeJS.ErrnoException) => {
      this.#settle(error.code === "EPIPE" ? "gone" : "idle");
    });
  }

  write(line: string): void {
    if (this.#state === "gone") return;
    this.#state = "writing";
    this.#stream.write(line);
  }

  takeLost(): number {
    const lost = this.#lost;
    this.#lost = 0;
    return lost;
  }

  flush(): Promise<void> {
    if (this.#state !== "writing") return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  flushNow(): void {
    this.#giveUpMs = performance.now() + flushNowMsMax;
    this.#stream.flushSync();
    this.#giveUpMs = Number.POSITIVE_INFINITY;
  }

  #settle(state: "idle" | "gone"): void {
    this.#state = state;
    for (const resolve of this.#waiting) resolve();
    this.#waiting = [];
  }
}
