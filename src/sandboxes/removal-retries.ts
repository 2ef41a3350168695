import type { CancelTimer, Clock } from "../base/clock.ts";
import type { Logger } from "../base/logger.ts";

const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 30_000;

interface Stuck {
  failures: number;
  /** Starts the next attempt, once. */
  again: () => void;
  cancel: CancelTimer;
}

/**
 * Keeps trying to remove what the engine could not remove, in pauses that
 * double. What is removed meanwhile by somebody else is to be reported as gone.
 */
export class RemovalRetries {
  readonly #clock: Clock;
  readonly #logger: Logger;
  /** By the engine's ref. */
  readonly #stuck = new Map<string, Stuck>();
  #stopped = false;

  constructor(parts: { readonly clock: Clock; readonly logger: Logger }) {
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  /** Sandboxes that could not be removed so far. */
  get count(): number {
    return this.#stuck.size;
  }

  has(ref: string): boolean {
    return this.#stuck.has(ref);
  }

  /**
   * Reports a removal that failed.
   * @param again removes it; what that rejects with is to be reported in turn.
   */
  failed(ref: string, sandboxId: string, cause: unknown, again: () => Promise<void>): void {
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
      stuck.again = nothing;
      again().catch(nothing);
    };
    const stuck = { failures, again: start, cancel: this.#clock.setTimer(retryMs, start) };
    this.#stuck.set(ref, stuck);
  }

  /** Reports that something is gone. */
  gone(ref: string): void {
    this.#stuck.get(ref)?.cancel();
    this.#stuck.delete(ref);
  }

  /** Ends the pauses: what kept things from being removed may be over. */
  hurry(): void {
    for (const { again } of [...this.#stuck.values()]) again();
  }

  /** Starts no attempt any more. */
  stop(): void {
    this.#stopped = true;
    for (const { cancel } of this.#stuck.values()) cancel();
  }
}

function nothing(): void {}
