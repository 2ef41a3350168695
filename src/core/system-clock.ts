import type { CancelTimer, Clock } from "./ports/clock.ts";

/** Node waits 1 ms for any longer delay; such timers are set again in steps. */
const LONGEST_DELAY_MS = 2 ** 31 - 1;

/** The machine's own time. */
export class SystemClock implements Clock {
  monotonicMs(): number {
    return performance.now();
  }

  wallMs(): number {
    return Date.now();
  }

  setTimer(delayMs: number, callback: () => void): CancelTimer {
    let timer: NodeJS.Timeout;
    const arm = (left: number): void => {
      const step = Math.min(left, LONGEST_DELAY_MS);
      timer = setTimeout(() => (left > step ? arm(left - step) : callback()), step);
      timer.unref();
    };
    arm(Math.max(0, delayMs));
    return () => clearTimeout(timer);
  }
}
