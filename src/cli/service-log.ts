import { constants, openSync, writeSync } from "node:fs";
import { isatty } from "node:tty";
import { pino } from "pino";
import { escapeActive } from "../base/safe-json.ts";
import { codeOf } from "../base/system-errors.ts";

/** Lines of JSON are written once they reach this size, or after {@link GATHER_MS}. */
const GATHER_BYTES = 4_096;
const GATHER_MS = 100;
/** How much of a log waits if it cannot be written: nobody reads it, or the disk is full. */
const MAX_WAITING_BYTES = 1024 * 1024;
/** Pause between attempts to write while that much waits. */
const FULL_RETRY_MS = 1;
const END_PAUSE_MS = 10;
/**
 * At exit: how many pauses to wait for a reader that takes nothing, and for one that is slow. Pauses, because while the
 * machine halts no reader can take anything.
 */
const END_IDLE_PAUSES = 100;
const END_PAUSES = 500;

const LOST = "lines of the log were lost here, because it could not be written";

/**
 * A log on stderr of JSON lines, or of what `format` makes of each. If it cannot be written, because nobody reads it,
 * its reader is gone or the disk is full, the service continues. Lines then wait up to a limit, lines beyond it are
 * lost, and a line in their place says how many. What is left is written when the process exits.
 */
export function serviceLog(options: pino.LoggerOptions, format?: (line: string) => string): pino.Logger {
  const fd = openStderr();
  // Fields may hold what callers chose, and the log is often read on a terminal.
  const text = (line: string) => escapeActive(format === undefined ? line : format(line));
  // One write per line would cost a fifth of the service's time. People want to see each at once.
  const output = new LogOutput(fd, format === undefined ? GATHER_BYTES : 0, (lost) => {
    const line = { level: pino.levels.values.warn, time: new Date().toISOString(), lost, msg: LOST };
    return text(`${JSON.stringify(line)}\n`);
  });
  setInterval(() => output.flush(), GATHER_MS).unref();
  process.once("exit", () => output.end());
  return pino(options, { write: (line) => output.write(text(line)) });
}

/** A descriptor of stderr on which a write never waits for a reader. */
function openStderr(): number {
  // Node makes pipes and sockets non-blocking when they are first used.
  void process.stderr;
  if (!isatty(2)) return 2;
  // A terminal that is stopped, by Ctrl-S or a broken connection. Its other users do not expect it to be non-blocking.
  try {
    return openSync("/proc/self/fd/2", constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  } catch {
    return 2;
  }
}

/** Lines on a descriptor that may be non-blocking. */
class LogOutput {
  readonly #fd: number;
  readonly #gatherBytes: number;
  readonly #gapLine: (lost: number) => string;
  /** What is being written. */
  #waiting = Buffer.alloc(0);
  /** What follows it. */
  #gathered = "";
  #gatheredBytes = 0;
  #lost = 0;
  #lastFailedMs = 0;

  /** @param gapLine returns the line to write in place of lost lines */
  constructor(fd: number, gatherBytes: number, gapLine: (lost: number) => string) {
    this.#fd = fd;
    this.#gatherBytes = gatherBytes;
    this.#gapLine = gapLine;
  }

  write(line: string): void {
    if (!this.#gather(line)) {
      // The reader may have taken some since the last attempt. A failed one takes longer than all else done for a line.
      const isDue = performance.now() >= this.#lastFailedMs + FULL_RETRY_MS;
      if (isDue) this.flush();
      if (!isDue || !this.#gather(line)) {
        this.#lost++;
        return;
      }
    }
    if (this.#gatheredBytes >= this.#gatherBytes) this.flush();
  }

  /** Returns whether there was space. */
  #gather(line: string): boolean {
    const text = this.#lost === 0 ? line : this.#gapLine(this.#lost) + line;
    const bytes = Buffer.byteLength(text);
    if (this.#waiting.length + this.#gatheredBytes + bytes > MAX_WAITING_BYTES) return false;
    this.#lost = 0;
    this.#gathered += text;
    this.#gatheredBytes += bytes;
    return true;
  }

  /** Writes what can be written now. Returns why some is left: the code of an error. */
  flush(): string | undefined {
    try {
      this.#writeWaiting();
      if (this.#lost > 0) {
        this.#gathered += this.#gapLine(this.#lost);
        this.#lost = 0;
      }
      this.#writeWaiting();
      return undefined;
    } catch (error) {
      this.#lastFailedMs = performance.now();
      return codeOf(error);
    }
  }

  /** Writes what is left, for as long as the reader takes some of it. */
  end(): void {
    let idle = 0;
    let left = Number.POSITIVE_INFINITY;
    for (let pauses = 0; pauses < END_PAUSES && this.flush() === "EAGAIN"; pauses++) {
      const size = this.#waiting.length + this.#gatheredBytes;
      idle = size < left ? 0 : idle + 1;
      left = size;
      if (idle === END_IDLE_PAUSES) return;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, END_PAUSE_MS);
    }
  }

  #writeWaiting(): void {
    while (this.#waiting.length > 0 || this.#gathered !== "") {
      if (this.#waiting.length === 0) {
        this.#waiting = Buffer.from(this.#gathered);
        this.#gathered = "";
        this.#gatheredBytes = 0;
      }
      this.#waiting = this.#waiting.subarray(writeSync(this.#fd, this.#waiting));
    }
  }
}
