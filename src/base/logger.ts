/** Where the service writes what it does. pino satisfies it. Fields hold no secret and no payload. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Logs nothing: a diagnosis is the answer, which a log would only repeat. */
export const SILENT: Logger = { debug() {}, info() {}, warn() {}, error() {} };
