import { BerthError } from "../base/errors.ts";

/**
 * Bounds what half-received requests, and data that waits for whom it is for,
 * may hold in memory, all calls together. The bound on one message alone would
 * let one connection hold thousands of messages that never end.
 */
export class ReceiveBudget {
  readonly #limitBytes: number;
  #heldBytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Bytes that are held now. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** Runs `work`, during which so many bytes are held. @throws BerthError `TOO_MANY_OPERATIONS` if there is no room for them */
  async hold<T>(bytes: number, work: () => Promise<T>): Promise<T> {
    const account = this.open();
    account.charge(bytes);
    try {
      return await work();
    } finally {
      account.close();
    }
  }

  /** Opens an account for one call, which must be closed. */
  open(): ReceiveAccount {
    let held = 0;
    return {
      charge: (bytes) => {
        if (this.#heldBytes + bytes > this.#limitBytes) throw exhausted();
        held += bytes;
        this.#heldBytes += bytes;
      },
      close: () => {
        this.#heldBytes -= held;
        held = 0;
      },
    };
  }
}

/** What one call holds of a {@link ReceiveBudget}. */
export interface ReceiveAccount {
  /** @throws BerthError `TOO_MANY_OPERATIONS` if the budget has no room for these bytes */
  charge(bytes: number): void;
  /** Gives everything back; calling it again does nothing. */
  close(): void;
}

function exhausted(): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    "The server is receiving as much as it can hold. Try again in a moment.",
    { retryAfterMs: 1000 },
  );
}
