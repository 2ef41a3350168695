import { untilAborted } from "./async.ts";

/**
 * A result for any number of callers, some of which give up. It keeps nothing of those; a promise keeps something of
 * each until it settles.
 */
export class SharedResult<T> {
  readonly #result: Promise<T>;
  readonly #waiters = new Set<() => void>();
  #settled = false;

  constructor(result: Promise<T>) {
    this.#result = result;
    const settle = (): void => {
      this.#settled = true;
      for (const wake of this.#waiters) wake();
    };
    result.then(settle, settle);
  }

  /** Whether the result is there. */
  get settled(): boolean {
    return this.#settled;
  }

  /** Resolves or rejects as the result does. @throws the signal's reason if it aborts before that. */
  async wait(signal?: AbortSignal): Promise<T> {
    if (!this.#settled) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#waiters.add(resolve);
      await untilAborted(promise, signal).finally(() => this.#waiters.delete(resolve));
    }
    return this.#result;
  }
}
