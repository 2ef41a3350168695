/** One attempt to use what a {@link CircuitBreaker} guards. Only the first call of a method counts. */
export interface Attempt {
  succeed(): void;
  /** Returns the milliseconds until the next attempt; undefined if another attempt has already reported the failure. */
  fail(): number | undefined;
  /** Ends the attempt without a verdict: the outcome says nothing about what is guarded. */
  cancel(): void;
}

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 5 * 60_000;

/**
 * Stops attempts after a failure, and allows retries, one at a time, after pauses that double from 1 s to 5 minutes.
 */
export class CircuitBreaker {
  readonly #now: () => number;
  #pauseMs = 0;
  #retryAt = 0;
  #probing = false;
  /** Number of failures so far. Identifies attempts that started before the last failure. */
  #failures = 0;

  /** @param now in milliseconds, on a clock that does not jump. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** Whether it has failed and not succeeded since. */
  get open(): boolean {
    return this.#pauseMs > 0;
  }

  get ready(): boolean {
    return !this.open || (!this.#probing && this.#now() >= this.#retryAt);
  }

  /** Starts an attempt; undefined if none is allowed. */
  begin(): Attempt | undefined {
    if (!this.ready) return undefined;
    const isProbe = this.open;
    if (isProbe) this.#probing = true;
    const failuresBefore = this.#failures;
    let ended = false;
    const end = (): boolean => {
      const first = !ended;
      ended = true;
      if (first && isProbe) this.#probing = false;
      return first;
    };
    return {
      cancel: () => void end(),
      succeed: () => {
        if (end()) this.#pauseMs = 0;
      },
      fail: () => {
        // Of concurrent attempts, only the first failure counts.
        if (!end() || failuresBefore !== this.#failures) return undefined;
        this.#fail();
        return this.#pauseMs;
      },
    };
  }

  #fail(): void {
    this.#failures++;
    this.#pauseMs = Math.min(Math.max(this.#pauseMs * 2, FIRST_PAUSE_MS), MAX_PAUSE_MS);
    this.#retryAt = this.#now() + this.#pauseMs;
  }
}
