import { BerthError } from "./errors.ts";
import { SharedPlaces } from "./shared-places.ts";

/** What one call takes of a {@link MemoryBudget}. Disposing of it closes it. */
export interface MemoryShare extends Disposable {
  /** Takes more. Returns whether there is room for that; if not, nothing changes. There is none once it is closed. */
  take(bytes: number): boolean;
  giveBack(bytes: number): void;
  /** Gives everything back. Idempotent. */
  close(): void;
}

/** The error for a call whose share has no room for more. */
export function noMemory(): BerthError {
  return new BerthError(
    "TOO_MANY_OPERATIONS",
    "Your calls use all the memory that the server has for them. Try again when some have ended.",
  );
}

/** A call takes more than this anyway, so small ones work also if there is no room. */
const UNCOUNTED_BYTES = 16 * 1024;

/**
 * Limits the memory of calls: for their requests, for what they gather, such as the output of commands, the results of
 * batches, the content of files, and the names in directories and archives, and for what their clients have not read.
 * Without it, many calls could each take as much as one may. They take memory only as they need it, and no owner can take
 * all of it.
 */
export class MemoryBudget {
  readonly #bytes: SharedPlaces;
  readonly #uncountedBytes: number;

  /** @param uncountedBytes how much of each share does not count. */
  constructor(bytes: number, uncountedBytes = UNCOUNTED_BYTES) {
    this.#bytes = new SharedPlaces(bytes);
    this.#uncountedBytes = uncountedBytes;
  }

  /** How much all owners have taken. */
  get heldBytes(): number {
    return this.#bytes.taken;
  }

  /** How much an owner has taken. */
  of(owner: string): number {
    return this.#bytes.of(owner);
  }

  /**
   * @param signal closes the share when it is aborted: when the call is over, and its answer is sent. Undefined: whoever
   *   opens it closes it.
   */
  open(owner: string, signal?: AbortSignal): MemoryShare {
    let held = 0;
    let isClosed = false;
    const countedAt = (bytes: number): number => Math.max(0, bytes - this.#uncountedBytes);
    const giveBack = (bytes: number): void => {
      const left = Math.max(0, held - bytes);
      this.#bytes.giveBack(owner, countedAt(held) - countedAt(left));
      held = left;
    };
    const close = (): void => {
      isClosed = true;
      signal?.removeEventListener("abort", close);
      giveBack(held);
    };
    signal?.addEventListener("abort", close);
    if (signal?.aborted) close();
    return {
      take: (bytes) => {
        const counted = countedAt(held + bytes) - countedAt(held);
        if (isClosed || (counted > 0 && !this.#bytes.hasRoomFor(owner, counted))) return false;
        held += bytes;
        if (counted > 0) this.#bytes.take(owner, counted);
        return true;
      },
      giveBack,
      close,
      [Symbol.dispose]: close,
    };
  }
}
