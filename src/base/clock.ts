import { readFileSync } from "node:fs";

/** Releases a timer; calling it again does nothing. */
export type CancelTimer = () => void;

/**
 * Time, injected so that tests can control it. Deadlines are measured on
 * {@link monotonicMs}, which a change of the wall clock does not move; wall
 * time is only shown and persisted.
 */
export interface Clock {
  /** Identifies the boot of the machine. {@link monotonicMs} of one boot can be compared, also across processes. */
  readonly bootId: string;
  /** Milliseconds since a fixed point of the machine's boot, never going back. */
  monotonicMs(): number;
  /** Wall time in milliseconds since the Unix epoch. */
  wallMs(): number;
  /** Calls `callback` once, `delayMs` from now. Does not keep the program alive. */
  setTimer(delayMs: number, callback: () => void): CancelTimer;
}

/** Node turns any longer delay into 1 ms, so such timers run in steps. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** The machine's own time. */
export class SystemClock implements Clock {
  readonly bootId = readBootId();
  /** The offset of the process's own clock to the machine's. */
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

/** Linux makes one at each boot. Where there is none, every process counts as a boot of its own. */
function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return `${process.pid}-${Date.now()}`;
  }
}
