/**
 * A structured log. `fields` are facts for programs, `message` is one short
 * constant phrase for people. Neither ever holds tokens or the payload of a
 * call. pino's logger has this shape.
 */
export interface Logger {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}
