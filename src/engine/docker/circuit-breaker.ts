/** One use of what a {@link CircuitBreaker} watches. At most one of its methods counts. */
export interface Attempt {
  succeed(): void;
  /** Returns after how many milliseconds it may be tried again; undefined where another attempt has told that. */
  fail(): number | undefined;
  /** It came to nothing that tells anything. */
  cancel(): void;
}

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 5 * 60_000;

/**
 * Keeps away from what has failed, and tries it again after pauses that double
 * from 1 s to 5 minutes, by one attempt at a time.
 */
export class CircuitBreaker {
  readonly #now: () => number;
  #pauseMs = 0;
  #tryAgainAt = 0;
  #trying = false;
  /** Tells attempts that began before the last failure. */
  #failures = 0;

  /** @param now in milliseconds, on a clock that does not jump. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Whether it has failed and not succeeded since. */
  get open(): boolean {
    return this.#pauseMs > 0;
  }

  /** Whether it may be tried now. */
  get ready(): boolean {
    return !this.open || (!this.#trying && this.#now() >= this.#tryAgainAt);
  }

  /** Undefined where it is to be kept away from. */
  begin(): Attempt | undefined {
    if (!this.ready) return undefined;
    const isProbe = this.open;
    if (isProbe) this.#trying = true;
    const began = this.#failures;
    let over = false;
    const end = (): boolean => {
      const first = !over;
      over = true;
      if (first && isProbe) this.#trying = false;
      return first;
    };
    return {
      cancel: () => void end(),
      succeed: () => {
        if (end()) this.#pauseMs = 0;
      },
      fail: () => {
        // Of those that were under way together, the first has told it.
        if (!end() || began !== this.#failures) return undefined;
        this.#fail();
        return this.#pauseMs;
      },
    };
  }

  #fail(): void {
    this.#failures++;
    this.#pauseMs = Math.min(Math.max(this.#pauseMs * 2, FIRST_PAUSE_MS), MAX_PAUSE_MS);
    this.#tryAgainAt = this.#now() + this.#pauseMs;
  }
}
