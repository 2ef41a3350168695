import type { CancelTimer, Clock } from "../base/clock.ts";
import { hasReason } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { Transaction } from "./database.ts";

/** How long a write waits for others to share its transaction. */
const GATHER_MS = 100;
/** Pause after a failed write, for instance on a full disk. */
const RETRY_MS = 1_000;

interface Write {
  readonly write: () => void;
  readonly onWritten: () => void;
}

/**
 * Writes that nobody waits for, batched into few transactions. A failed write is retried until it succeeds or a newer
 * write with the same key replaces it.
 */
export class WriteBehind {
  readonly #transaction: Transaction;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #pending = new Map<string, Write>();
  #cancel: CancelTimer | undefined;
  #failing = false;

  constructor(transaction: Transaction, parts: { readonly clock: Clock; readonly logger: Logger }) {
    this.#transaction = transaction;
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  /**
   * Schedules a write. Replaces a pending write with the same key.
   * @param onWritten called once the write is committed.
   */
  add(key: string, write: () => void, onWritten: () => void = () => {}): void {
    this.#pending.set(key, { write, onWritten });
    this.#cancel ??= this.#clock.setTimer(this.#failing ? RETRY_MS : GATHER_MS, () => this.flush());
  }

  drop(key: string): void {
    this.#pending.delete(key);
  }

  /** Writes everything that is pending. Returns whether all of it was written. Never throws. */
  flush(): boolean {
    this.#cancel?.();
    this.#cancel = undefined;
    if (this.#pending.size === 0) return true;
    const writes = [...this.#pending];
    this.#pending.clear();
    try {
      this.#transaction(() => {
        for (const [, { write }] of writes) write();
      });
      for (const [, { onWritten }] of writes) onWritten();
      if (this.#failing) this.#logger.info({}, "the data directory can be written again");
      this.#failing = false;
    } catch (error) {
      if (!hasReason(error, "NO_SPACE")) return this.#writeEach(writes);
      this.#retry(writes, error);
    }
    return !this.#failing;
  }

  #retry(writes: readonly (readonly [string, Write])[], error: unknown): void {
    if (!this.#failing) this.#logger.error({ err: error }, "the data directory cannot be written; retrying");
    this.#failing = true;
    for (const [key, { write, onWritten }] of writes)
      if (!this.#pending.has(key)) this.add(key, write, onWritten);
  }

  /** Writes one at a time, so that a write that always fails does not block the others. */
  #writeEach(writes: readonly (readonly [string, Write])[]): boolean {
    for (const one of writes) {
      const [key, { write, onWritten }] = one;
      try {
        this.#transaction(write);
        onWritten();
      } catch (error) {
        if (hasReason(error, "NO_SPACE")) this.#retry([one], error);
        else this.#logger.error({ err: error, key }, "a change could not be stored");
      }
    }
    return false;
  }
}
