/** Facts that go with a log line, for machines. */
export type LogFields = Readonly<Record<string, unknown>>;

/** Where Berth logs to; pino's loggers are one. Secrets, commands and their output are never logged. */
export interface Logger {
  debug(fields: LogFields, message: string): void;
  info(fields: LogFields, message: string): void;
  warn(fields: LogFields, message: string): void;
  error(fields: LogFields, message: string): void;
}
