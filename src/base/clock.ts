import { readFileSync } from "node:fs";

/** Cancels a timer. Idempotent. */
export type CancelTimer = () => void;

/**
 * The time, injected so that tests can control it. Deadlines are measured with {@link monotonicMs}, which changes of
 * the wall clock do not affect. Wall time is only displayed and stored.
 */
export interface Clock {
  /**
   * Identifies the boot of the machine. Values of {@link monotonicMs} can be compared within one boot, also across
   * processes.
   */
  readonly bootId: string;
  /** Milliseconds since a fixed point of the machine's boot. Never decreases. */
  monotonicMs(): number;
  /** Wall time in milliseconds since the Unix epoch. */
  wallMs(): number;
  /**
   * Calls `callback` once, `delayMs` from now, but not before the program has taken what has already arrived: after a
   * halt of the machine, that may be what the timer waits for. Does not keep the program alive.
   */
  setTimer(delayMs: number, callback: () => void): CancelTimer;
}

/** Node turns any longer delay into 1 ms, so longer timers run in steps. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** The machine's time. */
export class SystemClock implements Clock {
  readonly bootId = readBootId();
  /** The offset of the process's clock to the machine's. */
  readonly #processStartMs = Number(process.hrtime.bigint()) / 1e6 - performance.now();

  monotonicMs(): number {
    return this.#processStartMs + performance.now();
  }

  wallMs(): number {
    return Date.now();
  }

  setTimer(delayMs: number, callback: () => void): CancelTimer {
    let timer: NodeJS.Timeout;
    let turn: NodeJS.Immediate | undefined;
    const arm = (left: number): void => {
      const step = Math.min(left, MAX_DELAY_MS);
      timer = setTimeout(() => {
        // Node runs timers, then takes what has arrived, then runs this. If it were unreferenced, Node would first wait
        // for the next event.
        if (left <= step) turn = setImmediate(callback);
        else arm(left - step);
      }, step);
      timer.unref();
    };
    arm(Math.max(0, delayMs));
    return () => {
      clearTimeout(timer);
      clearImmediate(turn);
    };
  }
}

/** Linux generates an id at each boot. Without one, every process counts as a separate boot. */
function readBootId(): string {
  try {
    return readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  } catch {
    return `${process.pid}-${Date.now()}`;
  }
}
