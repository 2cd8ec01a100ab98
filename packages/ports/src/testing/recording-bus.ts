import type { Bus } from "../bus.ts";

/** Passes all on to `bus` and keeps which subjects were used, and how. */
export class RecordingBus implements Bus {
  readonly sentSubjects = new Set<string>();
  readonly heardSubjects = new Set<string>();
  readonly #bus: Bus;

  constructor(bus: Bus) {
    this.#bus = bus;
  }

  get maxPayloadBytes(): number {
    return this.#bus.maxPayloadBytes;
  }

  state(): ReturnType<Bus["state"]> {
    return this.#bus.state();
  }

  onState(...args: Parameters<Bus["onState"]>): ReturnType<Bus["onState"]> {
    return this.#bus.onState(...args);
  }

  request(...args: Parameters<Bus["request"]>): ReturnType<Bus["request"]> {
    this.sentSubjects.add(args[0]);
    return this.#bus.request(...args);
  }

  publish(...args: Parameters<Bus["publish"]>): ReturnType<Bus["publish"]> {
    this.sentSubjects.add(args[0]);
    return this.#bus.publish(...args);
  }

  subscribe(...args: Parameters<Bus["subscribe"]>): ReturnType<Bus["subscribe"]> {
    this.heardSubjects.add(args[0]);
    return this.#bus.subscribe(...args);
  }

  serve(...args: Parameters<Bus["serve"]>): ReturnType<Bus["serve"]> {
    this.heardSubjects.add(args[0]);
    return this.#bus.serve(...args);
  }

  flush(): Promise<void> {
    return this.#bus.flush();
  }

  drain(): Promise<void> {
    return this.#bus.drain();
  }
}
