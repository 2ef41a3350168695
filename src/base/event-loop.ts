/** What a {@link TurnShare} has of one turn, in milliseconds. */
const SHARE_MS = 5;

/**
 * A share of each turn of the event loop, for work that is there already in any
 * amount and would otherwise keep everything else waiting. Where it is used up
 * the rest waits for the next turn, first come, first served.
 */
export class TurnShare {
  /** When the first of the work went on in this turn. */
  #sinceMs: number | undefined;
  readonly #waiting: (() => void)[] = [];

  /** Resolves when the caller may go on; undefined: at once, and not in a microtask, so that its work counts before others enter. */
  enter(): Promise<void> | undefined {
    if (this.#waiting.length === 0 && this.#hasTime()) return undefined;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #hasTime(): boolean {
    const nowMs = performance.now();
    if (this.#sinceMs === undefined) {
      this.#sinceMs = nowMs;
      setImmediate(this.#endTurn);
    }
    return nowMs - this.#sinceMs < SHARE_MS;
  }

  readonly #endTurn = (): void => {
    this.#sinceMs = undefined;
    this.#resume();
  };

  readonly #resume = (): void => {
    if (this.#waiting.length === 0 || !this.#hasTime()) return;
    this.#waiting.shift()?.();
    // What the resumed one does at once counts before the next is: a tick set from a microtask comes after all of them.
    queueMicrotask(() => process.nextTick(this.#resume));
  };
}
