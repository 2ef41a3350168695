import { pino } from "pino";

/** What is gathered is written at this size, or after {@link GATHER_MS}. */
const GATHER_BYTES = 4_096;
const GATHER_MS = 100;
/** What is kept of a log that cannot be written, on a disk that is full. */
const MAX_BYTES = 1024 * 1024;

/**
 * A log of lines of JSON on a descriptor. Lines are gathered: a line for each call, each with a write of its own, would
 * cost a fifth of the service's time. The last words of a service that dies are written as it goes. Where the log cannot
 * be written, because its reader has gone or its disk is full, the service goes on without.
 */
export function jsonLog(fd: number, options: pino.LoggerOptions): pino.Logger {
  const gathering = { minLength: GATHER_BYTES, periodicFlush: GATHER_MS, maxLength: MAX_BYTES };
  const destination = pino.destination({ dest: fd, sync: true, ...gathering });
  destination.on("error", () => {});
  process.once("exit", () => {
    // `flushSync` tries for ever what cannot be written. A flush leaves what is less than GATHER_BYTES for another.
    for (let i = 0; i < 3; i++) destination.flush();
  });
  return pino(options, destination);
}
