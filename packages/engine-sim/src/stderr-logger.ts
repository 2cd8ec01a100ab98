import type { LogFields, Logger } from "@baton/ports";

/** One JSON line per message on standard error; standard output carries the ready line alone. */
export class StderrLogger implements Logger {
  readonly #fields: LogFields;

  constructor(fields: LogFields) {
    this.#fields = fields;
  }

  /** A simulated engine has nothing to say at this level. */
  debug(): void {}

  info(fields: LogFields, message: string): void {
    this.#write("info", fields, message);
  }

  warn(fields: LogFields, message: string): void {
    this.#write("warn", fields, message);
  }

  error(fields: LogFields, message: string): void {
    this.#write("error", fields, message);
  }

  child(fields: LogFields): Logger {
    return new StderrLogger({ ...this.#fields, ...fields });
  }

  #write(level: string, fields: LogFields, message: string): void {
    const time = new Date().toISOString();
    process.stderr.write(
      `${JSON.stringify({ time, level, message, ...this.#fields, ...fields })}\n`,
    );
  }
}
