import { abortError } from "./errors.ts";

/** Lets so much happen at once; the rest waits, first come, first served. */
export class Turns {
  readonly #waiting = new Set<() => Promise<void>>();
  #free: number;

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  /**
   * Runs `act` when its turn has come, which ends when `act` settles.
   * @param act never rejects.
   * @returns how to give the turn up; false: it has come already.
   */
  take(act: () => Promise<void>): () => boolean {
    // Its own even where the same function waits twice.
    const turn = (): Promise<void> => act();
    this.#waiting.add(turn);
    this.#next();
    return () => this.#waiting.delete(turn);
  }

  /** Does `work` when its turn has come. Rejects as it does, or with the signal's error where no turn came before. */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const done = Promise.withResolvers<T>();
    const drop = this.take(() => work().then(done.resolve, done.reject));
    const onAbort = (): void => {
      // Work that has started ends by itself.
      if (drop()) done.reject(signal && abortError(signal));
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    if (signal?.aborted) onAbort();
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
