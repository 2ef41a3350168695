import type { Logger } from "../../src/base/logger.ts";

/** A line of a {@link MemoryLog}. */
export interface LogLine {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A log that tests can read. */
export class MemoryLog implements Logger {
  readonly lines: LogLine[] = [];

  debug(fields: object, message: string): void {
    this.#add("debug", fields, message);
  }

  info(fields: object, message: string): void {
    this.#add("info", fields, message);
  }

  warn(fields: object, message: string): void {
    this.#add("warn", fields, message);
  }

  error(fields: object, message: string): void {
    this.#add("error", fields, message);
  }

  get errors(): LogLine[] {
    return this.lines.filter(({ level }) => level === "error");
  }

  /** The lines about ended calls. */
  get calls(): LogLine[] {
    return this.lines.filter(({ message }) => message === "rpc");
  }

  #add(level: LogLine["level"], fields: object, message: string): void {
    this.lines.push({ level, message, fields: { ...fields } });
  }
}
