import { withRoom } from "../base/with-room.ts";

/**
 * Keeps the first and the last bytes of a stream, half of `limit` each, and counts those in between. Bytes are copied,
 * so that a flood of tiny pieces takes no more memory or time than large ones.
 */
export class HeadAndTail {
  readonly #headLimit: number;
  readonly #tailLimit: number;
  #head = Buffer.alloc(0);
  #headBytes = 0;
  /** A ring, once it has the size of the limit. */
  #tail = Buffer.alloc(0);
  /** Where the next byte goes. */
  #tailEnd = 0;
  #tailBytes = 0;
  #skipped = 0;

  constructor(limit: number) {
    this.#headLimit = Math.ceil(limit / 2);
    this.#tailLimit = limit - this.#headLimit;
  }

  append(data: Uint8Array): void {
    const isStart = this.#tailBytes === 0 && this.#skipped === 0;
    const forHead = isStart ? Math.min(data.length, this.#headLimit - this.#headBytes) : 0;
    if (forHead > 0) {
      const bytes = this.#headBytes + forHead;
      this.#head = withRoom(this.#head, this.#headBytes, bytes, this.#headLimit);
      this.#head.set(data.subarray(0, forHead), this.#headBytes);
      this.#headBytes = bytes;
    }
    this.#appendToTail(data.subarray(forHead));
  }

  #appendToTail(data: Uint8Array): void {
    // Bytes of the same piece push each other out, too.
    const kept = data.subarray(Math.max(0, data.length - this.#tailLimit));
    const bytes = Math.min(this.#tailLimit, this.#tailBytes + kept.length);
    this.#skipped += this.#tailBytes + data.length - bytes;
    if (kept.length === 0) return;
    this.#tail = withRoom(this.#tail, this.#tailBytes, bytes, this.#tailLimit);
    const straight = Math.min(kept.length, this.#tail.length - this.#tailEnd);
    this.#tail.set(kept.subarray(0, straight), this.#tailEnd);
    this.#tail.set(kept.subarray(straight), 0);
    this.#tailEnd = (this.#tailEnd + kept.length) % this.#tailLimit;
    this.#tailBytes = bytes;
  }

  /** Counts bytes that were lost earlier. Drops the tail kept so far, because it precedes them. */
  skip(bytes: number): void {
    this.#skipped += bytes + this.#tailBytes;
    this.#tailBytes = 0;
    this.#tailEnd = 0;
  }

  /**
   * Returns the head and tail joined, and the range of missing bytes between them, from `from` up to but excluding
   * `to`.
   */
  result(): {
    readonly data: Buffer;
    readonly gap: { readonly from: number; readonly to: number } | undefined;
  } {
    const from = this.#headBytes;
    const gap = this.#skipped > 0 ? { from, to: from + this.#skipped } : undefined;
    const begin = this.#tailEnd - this.#tailBytes;
    const tail =
      begin >= 0
        ? [this.#tail.subarray(begin, this.#tailEnd)]
        : [this.#tail.subarray(begin), this.#tail.subarray(0, this.#tailEnd)];
    return { data: Buffer.concat([this.#head.subarray(0, from), ...tail]), gap };
  }
}
