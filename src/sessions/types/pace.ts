import { yieldTurn } from "../../base/async.ts";

/** How long work may use the event loop at once. */
const SLICE_MS = 10;

/** Divides work whose amount code in a sandbox decides, so that others can use the event loop in between. */
export class Pace {
  readonly #signal: AbortSignal;
  #since = performance.now();

  /** @param signal ends the work */
  constructor(signal: AbortSignal) {
    this.#signal = signal;
  }

  /**
   * Call this before each part of the work, and wait for what it returns. Undefined: continue at once.
   * @throws the signal's reason
   */
  next(): Promise<void> | undefined {
    return performance.now() - this.#since < SLICE_MS ? undefined : this.#letOthers();
  }

  async #letOthers(): Promise<void> {
    await yieldTurn(this.#signal);
    this.#since = performance.now();
  }
}
