import { readFileSync } from "node:fs";

/** Releases a timer; calling it again does nothing. */
export type CancelTimer = () => void;

/**
 * Time, injected so that tests can turn it. Deadlines are measured on
 * {@link monotonicMs}, which a change of the wall clock does not move; wall
 * time is only shown and persisted.
 */
export interface Clock {
  /** Which run of the machine {@link monotonicMs} counts in: the moments of one run can be compared, also those of other processes. */
  readonly bootId: string;
  /** Milliseconds since some fixed point of the machine's run, never going back. */
  monotonicMs(): number;
  /** Wall time in milliseconds since the Unix epoch. */
  wallMs(): number;
  /** Calls `callback` once, `delayMs` from now. Does not keep the program alive. */
  setTimer(delayMs: number, callback: () => void): CancelTimer;
}

/** Node waits 1 ms for any longer delay; such timers are set again in steps. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** The machine's own time. */
export class SystemClock implements Clock {
  readonly bootId = readBootId();
  /** What the process's own clock lacks of the machine's. */
  readonly #processStartMs = Number(process.hrtime.bigint()) / 1e6 - performance.now();

  monotonicMs(): number {
    return this.#processStartMs + performance.now();
  }

  wallMs(): number {
    return Date.now();
  }

  setTimer(delayMs: number, callback: () => void): CancelTimer {
    let timer: NodeJS.Timeout;
    const arm = (left: number): void => {
      const step = Math.min(left, MAX_DELAY_MS);
      timer = setTimeout(() => (left > step ? arm(left - step) : callback()), step);
      timer.unref();
    };
    arm(Math.max(0, delayMs));
    return () => clearTimeout(timer);
  }
}

/** Linux makes one at each start. Where there is none, every process is taken for a start of its own. */
function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return `${process.pid}-${Date.now()}`;
  }
}
