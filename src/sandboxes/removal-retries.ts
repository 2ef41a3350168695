import type { CancelTimer, Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;

interface Stuck {
  failures: number;
  /** Starts the next attempt. Only the first call counts. */
  retry: () => void;
  cancel: CancelTimer;
}

/**
 * Retries failed removals, with pauses that double. Sandboxes that others remove meanwhile must be reported to
 * {@link RemovalRetries.gone}.
 */
export class RemovalRetries {
  readonly #clock: Clock;
  readonly #logger: Logger;
  /** Failed removals, by ref. */
  readonly #stuck = new Map<string, Stuck>();
  #stopped = false;

  constructor(parts: { readonly clock: Clock; readonly logger: Logger }) {
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  /** Number of sandboxes that could not be removed so far. */
  get count(): number {
    return this.#stuck.size;
  }

  has(ref: string): boolean {
    return this.#stuck.has(ref);
  }

  /**
   * Reports a removal that failed.
   * @param retry removes it. A failure must be reported here again.
   */
  failed(ref: string, sandboxId: string, cause: unknown, retry: () => Promise<void>): void {
    const known = this.#stuck.get(ref);
    known?.cancel();
    const failures = (known?.failures ?? 0) + 1;
    const retryMs = Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS);
    this.#logger.warn(
      { ref, sandboxId, failures, retryMs, err: cause },
      "a sandbox could not be removed; trying again",
    );
    if (this.#stopped) return;
    const start = (): void => {
      stuck.cancel();
      stuck.retry = nothing;
      retry().catch(nothing);
    };
    const stuck = { failures, retry: start, cancel: this.#clock.setTimer(retryMs, start) };
    this.#stuck.set(ref, stuck);
  }

  /** Reports that something is gone. */
  gone(ref: string): void {
    this.#stuck.get(ref)?.cancel();
    this.#stuck.delete(ref);
  }

  /** Retries everything now, because the cause of the failures may be gone. */
  hurry(): void {
    for (const { retry } of [...this.#stuck.values()]) retry();
  }

  stop(): void {
    this.#stopped = true;
    for (const { cancel } of this.#stuck.values()) cancel();
  }
}

function nothing(): void {}
