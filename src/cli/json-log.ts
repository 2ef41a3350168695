import { pino } from "pino";

/** Lines are written once they reach this size, or after {@link GATHER_MS}. */
const GATHER_BYTES = 4_096;
const GATHER_MS = 100;
/** How much of a log is kept in memory if it cannot be written, for example because the disk is full. */
const MAX_BYTES = 1024 * 1024;

/**
 * A log of JSON lines on a descriptor. Lines are batched: one write per line would cost a fifth of the service's time.
 * What is left is written when the process exits. If the log cannot be written, because its reader is gone or the disk
 * is full, the service continues without it.
 */
export function jsonLog(fd: number, options: pino.LoggerOptions): pino.Logger {
  const gathering = { minLength: GATHER_BYTES, periodicFlush: GATHER_MS, maxLength: MAX_BYTES };
  const destination = pino.destination({ dest: fd, sync: true, ...gathering });
  destination.on("error", () => {});
  process.once("exit", () => {
    // Not `flushSync`, which retries forever if the log cannot be written. A flush may leave less than GATHER_BYTES for
    // the next one.
    for (let i = 0; i < 3; i++) destination.flush();
  });
  return pino(options, destination);
}
