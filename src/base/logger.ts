/** The service's logger, an interface that pino satisfies. Fields must not contain secrets or payloads. */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** Logs nothing. For diagnoses, whose findings a log would only repeat. */
export const SILENT: Logger = { debug() {}, info() {}, warn() {}, error() {} };
