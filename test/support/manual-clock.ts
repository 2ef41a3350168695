import { setImmediate } from "node:timers/promises";
import type { CancelTimer, Clock } from "../../src/base/clock.ts";

interface Timer {
  readonly at: number;
  readonly callback: () => void;
}

/** Time that only passes when a test says so. */
export class ManualClock implements Clock {
  readonly #timers = new Set<Timer>();
  bootId = "boot-1";
  #nowMs = 1_000;
  #wallAheadMs = 1_700_000_000_000;

  monotonicMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return this.#wallAheadMs + this.#nowMs;
  }

  setTimer(delayMs: number, callback: () => void): CancelTimer {
    const timer = { at: this.#nowMs + delayMs, callback };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  /** Sets the wall clock forward, or, with a negative number, back. */
  setWall(byMs: number): void {
    this.#wallAheadMs += byMs;
  }

  /** Simulates the end of the service's process: its timers never fire. */
  forgetTimers(): void {
    this.#timers.clear();
  }

  /** The number of timers that are set. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Advances time. Timers fire at their time, in order, and what each one starts may progress before the next one. */
  async advance(ms: number): Promise<void> {
    const until = this.#nowMs + ms;
    await settled();
    for (let next = this.#next(until); next !== undefined; next = this.#next(until)) {
      this.#nowMs = Math.max(this.#nowMs, next.at);
      this.#timers.delete(next);
      next.callback();
      await settled();
    }
    this.#nowMs = until;
    await settled();
  }

  #next(until: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at <= until && (first === undefined || timer.at < first.at)) first = timer;
    }
    return first;
  }
}

/** Lets everything progress that does not wait for something external. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 3; i++) await setImmediate();
}
