export type LogFields = Readonly<Record<string, unknown>>;

/** Structured log; the message is a constant phrase, what varies goes into the fields. */
export interface Logger {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
  /** A logger that adds `fields` to each line. */
  child(fields: LogFields): Logger;
}
