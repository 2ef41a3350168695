import type { CancelTimer, Clock } from "../base/clock.ts";
import { hasReason } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { Transaction } from "./database.ts";

/** How long a write waits for others to share its transaction. */
const GATHER_MS = 100;
/** For how long writes share a transaction, which blocks the event loop. */
const SLICE_MS = 20;
/** Pause after a failed write, for instance on a full disk. */
const RETRY_MS = 1_000;

interface Write {
  readonly write: () => void;
  readonly onWritten: () => void;
}

type Entry = readonly [key: string, write: Write];

/**
 * Writes that nobody waits for, batched into few transactions, with turns of the event loop between them. A failed write
 * is retried until it succeeds or a newer write with the same key replaces it.
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
    this.#wait(GATHER_MS);
  }

  drop(key: string): void {
    this.#pending.delete(key);
  }

  /** Writes everything that is pending. Returns whether all of it was written. Never throws. */
  flush(): boolean {
    this.#cancel?.();
    this.#cancel = undefined;
    let isWritten = true;
    while (this.#pending.size > 0) {
      isWritten = this.#write([...this.#pending]) && isWritten;
      if (!this.#failing) continue;
      this.#wait(RETRY_MS);
      return false;
    }
    return isWritten;
  }

  /** Writes what is pending with a key, and leaves the rest for later. Never throws. */
  flushOne(key: string): void {
    const write = this.#pending.get(key);
    if (write !== undefined) this.#write([[key, write]]);
  }

  #wait(ms: number): void {
    this.#cancel ??= this.#clock.setTimer(this.#failing ? RETRY_MS : ms, () => {
      this.#cancel = undefined;
      if (this.#pending.size > 0) this.#write([...this.#pending]);
      // The rest, in the next turn.
      if (this.#pending.size > 0) this.#wait(0);
    });
  }

  /** Writes as many of these as fit into a slice, and at least one. Returns whether these were written. */
  #write(pending: readonly Entry[]): boolean {
    let count = 0;
    try {
      this.#transaction(() => {
        const until = performance.now() + SLICE_MS;
        do pending[count++]?.[1].write();
        while (count < pending.length && performance.now() < until);
      });
      for (const [, { onWritten }] of this.#take(pending, count)) onWritten();
      if (this.#failing) this.#logger.info({}, "the data directory can be written again");
      this.#failing = false;
      return true;
    } catch (error) {
      // Perhaps the transaction could not begin.
      const tried = this.#take(pending, Math.max(1, count));
      if (!hasReason(error, "NO_SPACE")) return this.#writeEach(tried);
      this.#retry(tried, error);
      return false;
    }
  }

  /** Removes the first ones from what is pending, unless newer writes have replaced them. */
  #take(pending: readonly Entry[], count: number): readonly Entry[] {
    const taken = pending.slice(0, count);
    for (const [key, write] of taken) if (this.#pending.get(key) === write) this.#pending.delete(key);
    return taken;
  }

  #retry(writes: readonly Entry[], error: unknown): void {
    if (!this.#failing) this.#logger.error({ err: error }, "the data directory cannot be written; retrying");
    this.#failing = true;
    for (const [key, { write, onWritten }] of writes)
      if (!this.#pending.has(key)) this.add(key, write, onWritten);
  }

  /** Writes one at a time, so that a write that always fails does not block the others. */
  #writeEach(writes: readonly Entry[]): boolean {
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
