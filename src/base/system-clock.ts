import { readFileSync } from "node:fs";
import type { CancelTimer, Clock } from "./clock.ts";

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
