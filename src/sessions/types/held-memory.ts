import { FairShare } from "../../base/fair-share.ts";

const MAX_BYTES = 256 * 1024 * 1024;

/** {@link HeldMemory.hold} for one owner. */
export type Hold = (drop: () => void, bytes: number) => void;

/**
 * Limits the memory that code in sandboxes makes the service hold, over all sessions: messages of which a program has
 * sent only a part, which may be pictures of large screens, references to the elements of pages, and states of globs. A
 * program can keep it held for as long as a call or a session may take.
 */
export class HeldMemory {
  readonly #maxBytes: number;
  readonly #shares = new FairShare<() => void>();
  readonly #owners = new Map<() => void, string>();

  constructor(maxBytes = MAX_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Sets how much something holds for an owner. Beyond the limit, the owners with most lose what has grown least
   * recently.
   * @param drop identifies it. Called later in this turn of the event loop to drop it.
   */
  hold(owner: string, drop: () => void, bytes: number): void {
    const former = this.#owners.get(drop);
    if (former !== undefined) this.#shares.delete(former, drop);
    this.#owners.delete(drop);
    if (bytes === 0) return;
    this.#owners.set(drop, owner);
    this.#shares.set(owner, drop, bytes);
    for (const { item } of this.#shares.beyond(this.#maxBytes)) {
      this.#owners.delete(item);
      queueMicrotask(item);
    }
  }
}
