import { abortError, throwIfAborted } from "./errors.ts";

/** Limits how many actions run at once. The rest waits, first come, first served. */
export class Turns {
  readonly #waiting = new Set<() => Promise<void>>();
  #free: number;

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  /**
   * Runs `act` when its turn comes. The turn ends when `act` settles.
   * @param act must not reject.
   * @returns a function that cancels the wait for a turn, and returns false if the turn has already come.
   */
  take(act: () => Promise<void>): () => boolean {
    // A separate function, because the same `act` may wait twice.
    const turn = (): Promise<void> => act();
    this.#waiting.add(turn);
    this.#next();
    return () => this.#waiting.delete(turn);
  }

  /**
   * Runs `work` when its turn comes. Rejects as `work` does, or with the signal's error if it is aborted before the
   * turn.
   */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    throwIfAborted(signal);
    const done = Promise.withResolvers<T>();
    const drop = this.take(() => work().then(done.resolve, done.reject));
    const onAbort = (): void => {
      // Work that has started is not aborted here.
      if (drop()) done.reject(signal && abortError(signal));
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    return done.promise.finally(() => signal?.removeEventListener("abort", onAbort));
  }

  #next(): void {
    for (const turn of this.#waiting) {
      if (this.#free === 0) return;
      this.#free--;
      this.#waiting.delete(turn);
      void turn().finally(() => {
        this.#free++;
        this.#next();
      });
    }
  }
}
