/** How long a {@link TurnShare} may use one turn, in milliseconds. */
const SHARE_MS = 5;

/**
 * A share of each turn of the event loop, for work of any amount that waits for nothing and would otherwise block
 * everything else. When the share is used up, the rest waits for the next turn, first come, first served.
 */
export class TurnShare {
  /** When work first ran in this turn. */
  #sinceMs: number | undefined;
  readonly #waiting: (() => void)[] = [];

  /**
   * Resolves when the caller may continue. Undefined means at once: not in a microtask, so that its work counts before
   * others enter.
   */
  enter(): Promise<void> | undefined {
    if (this.#waiting.length === 0 && this.#hasTime()) return undefined;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Wakes waiting callers, one after the other. What each then does in microtasks counts before the next one. */
  async wakeEach(callers: Iterable<() => void>): Promise<void> {
    for (const wake of callers) {
      const turn = this.enter();
      if (turn) await turn;
      wake();
      await new Promise<void>(afterMicrotasks);
    }
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
    // Count the work of the resumed caller before resuming the next.
    afterMicrotasks(this.#resume);
  };
}

/** A tick that is set from a microtask runs after all microtasks. */
function afterMicrotasks(act: () => void): void {
  queueMicrotask(() => process.nextTick(act));
}
