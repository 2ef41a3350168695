import { FairShare } from "../../base/fair-share.ts";

const MAX_BYTES = 256 * 1024 * 1024;

/**
 * Limits the memory for messages of which programs in sandboxes have sent only a part, over all sessions. Each may be a
 * picture of a large screen, and a program can keep back its end for as long as the call may take.
 */
export class UnfinishedMessages {
  readonly #maxBytes: number;
  readonly #shares = new FairShare<() => void>();
  readonly #owners = new Map<() => void, string>();

  constructor(maxBytes = MAX_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Sets how much a program's unfinished message holds for an owner. Beyond the limit, the owners with most lose those
   * that have grown least recently.
   * @param drop identifies the program. Called later in this turn of the event loop to drop its message.
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
