import type { BerthError } from "./errors.ts";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

/** The pauses between attempts, for so many milliseconds in total. */
export class Pauses {
  readonly #until: number;
  #next = FIRST_PAUSE_MS;

  constructor(forMs: number) {
    this.#until = performance.now() + forMs;
  }

  /** Waits before the next attempt; throws the error after the last one, and the signal's reason if it is aborted. */
  async wait(error: BerthError, signal?: AbortSignal): Promise<void> {
    const pause = Math.max(this.#next, error.retryAfterMs ?? 0);
    if (performance.now() + pause > this.#until) throw error;
    this.#next = Math.min(this.#next * 2, LONGEST_PAUSE_MS);
    await sleep(pause, signal);
  }
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}
