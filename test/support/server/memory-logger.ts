import type { Logger } from "../../../src/base/logger.ts";

/** A line of a {@link MemoryLogger}. */
export interface LogLine {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A log that tests can read. */
export class MemoryLogger implements Logger {
  readonly lines: LogLine[] = [];

  debug(fields: object, message: string): void {
    this.lines.push({ level: "debug", message, fields: { ...fields } });
  }

  info(fields: object, message: string): void {
    this.lines.push({ level: "info", message, fields: { ...fields } });
  }

  warn(fields: object, message: string): void {
    this.lines.push({ level: "warn", message, fields: { ...fields } });
  }

  error(fields: object, message: string): void {
    this.lines.push({ level: "error", message, fields: { ...fields } });
  }

  /** The lines about ended calls. */
  get calls(): LogLine[] {
    return this.lines.filter((line) => line.message === "rpc");
  }
}
