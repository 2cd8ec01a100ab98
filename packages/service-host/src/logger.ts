import type { LogFields, Logger } from "@baton/ports";
import { type Logger as PinoLogger, pino, stdTimeFunctions } from "pino";
import { plainFields } from "./log-fields.ts";
import { prettyLine } from "./log-pretty.ts";
import { type LogSink, openLogSink } from "./log-sink.ts";
import { maskText } from "./secret-mask.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";

export interface LoggerOptions {
  readonly level: LogLevel;
  /** True: a line for people; false: JSON. */
  readonly pretty: boolean;
  /** Name of the service, in each line. */
  readonly service: string;
  /** A file descriptor, written in the background, or a writer of lines. Default: stdout. */
  readonly destination?: number | { write(line: string): unknown };
  /** Colours of the pretty form. Default: on a terminal, unless NO_COLOR is set. */
  readonly colour?: boolean;
}

export interface HostLogger extends Logger {
  /** Resolves when all lines so far are written, or cannot be. */
  flush(): Promise<void>;
  /** The same, blocking: for the last lines of a process that dies. */
  flushNow(): void;
}

/**
 * JSON lines by pino: level, time (ISO), service, fields, msg. Secrets are masked (`plainFields`).
 * Nothing here throws or rejects: a log that cannot be written does not stop the service.
 * Cost of a line: some 7 us, the double when pretty; below the level: a comparison.
 */
export function createLogger(options: LoggerOptions): HostLogger {
  const { level, pretty, service } = options;
  const sink = openLogSink(options);
  const base = pino(
    {
      level,
      base: { service },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    { write: (line) => sink.write(pretty ? prettyLine(line, sink) : line) },
  );
  return new PinoBackedLogger(base, sink);
}

class PinoBackedLogger implements HostLogger {
  readonly #pino: PinoLogger;
  readonly #sink: LogSink;

  constructor(base: PinoLogger, sink: LogSink) {
    this.#pino = base;
    this.#sink = sink;
  }

  debug(fields: LogFields, message: string): void {
    this.#log("debug", fields, message);
  }

  info(fields: LogFields, message: string): void {
    this.#log("info", fields, message);
  }

  warn(fields: LogFields, message: string): void {
    this.#log("warn", fields, message);
  }

  error(fields: LogFields, message: string): void {
    this.#log("error", fields, message);
  }

  child(fields: LogFields): HostLogger {
    try {
      return new PinoBackedLogger(this.#pino.child(plainFields(fields)), this.#sink);
    } catch {
      return this;
    }
  }

  async flush(): Promise<void> {
    try {
      await this.#sink.flush();
    } catch {
      // See flushNow.
    }
  }

  flushNow(): void {
    try {
      this.#sink.flushNow();
    } catch {
      // The descriptor is gone; the lines are lost with it.
    }
  }

  #log(level: LogLevel, fields: LogFields, message: string): void {
    if (!this.#pino.isLevelEnabled(level)) return;
    try {
      const lostLines = this.#sink.takeLost();
      if (lostLines > 0) this.#pino.warn({ lostLines }, "log lines lost to a slow reader");
      this.#pino[level](plainFields(fields), maskText(message));
    } catch {
      // A writer that throws must not take a request with it.
    }
  }
}
