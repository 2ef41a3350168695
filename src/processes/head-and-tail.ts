import { withRoom } from "../base/with-room.ts";

/** A buffer of this size is made without asking whether there is memory for it. */
const SMALL_BYTES = 16 * 1024;

/**
 * Keeps the first and the last bytes of a stream, half of `limit` each, and counts those in between. Bytes are copied,
 * so that a flood of tiny pieces takes no more memory or time than large ones. If there is no memory for more, it goes on
 * with what it has.
 */
export class HeadAndTail {
  readonly #take: (bytes: number) => boolean;
  #headLimit: number;
  #tailLimit: number;
  #head = Buffer.alloc(0);
  #headBytes = 0;
  /** A ring, once it has the size of the limit. */
  #tail = Buffer.alloc(0);
  /** Where the next byte goes. */
  #tailEnd = 0;
  #tailBytes = 0;
  #skipped = 0;

  /** @param take asks for memory before it is used. Returns whether there is that much. Default: there always is. */
  constructor(limit: number, take: (bytes: number) => boolean = () => true) {
    this.#take = take;
    this.#headLimit = Math.ceil(limit / 2);
    this.#tailLimit = limit - this.#headLimit;
  }

  append(data: Uint8Array): void {
    const isStart = this.#tailBytes === 0 && this.#skipped === 0;
    const forHead = isStart ? this.#appendToHead(data) : 0;
    this.#appendToTail(data.subarray(forHead));
  }

  /** Returns how many bytes it took. */
  #appendToHead(data: Uint8Array): number {
    const wanted = Math.min(data.length, this.#headLimit - this.#headBytes);
    if (wanted === 0) return 0;
    this.#head = this.#grown(this.#head, this.#headBytes, this.#headBytes + wanted, this.#headLimit);
    const taken = Math.min(wanted, this.#head.length - this.#headBytes);
    this.#head.set(data.subarray(0, taken), this.#headBytes);
    this.#headBytes += taken;
    if (taken < wanted) this.#split();
    return taken;
  }

  #appendToTail(data: Uint8Array): void {
    if (data.length === 0) return;
    const wanted = Math.min(this.#tailLimit, this.#tailBytes + data.length);
    const isEmpty = this.#tail.length === 0;
    this.#tail = this.#grown(this.#tail, this.#tailBytes, wanted, this.#tailLimit);
    if (this.#tail.length < wanted) {
      if (isEmpty && this.#skipped === 0) this.#split();
      else this.#tailLimit = this.#tail.length;
    }
    // Bytes of the same piece push each other out, too.
    const kept = data.subarray(Math.max(0, data.length - this.#tailLimit));
    const bytes = Math.min(this.#tailLimit, this.#tailBytes + kept.length);
    this.#skipped += this.#tailBytes + data.length - bytes;
    if (kept.length === 0) return;
    this.#tailEnd %= this.#tailLimit;
    const straight = Math.min(kept.length, this.#tail.length - this.#tailEnd);
    this.#tail.set(kept.subarray(0, straight), this.#tailEnd);
    this.#tail.set(kept.subarray(straight), 0);
    this.#tailEnd = (this.#tailEnd + kept.length) % this.#tailLimit;
    this.#tailBytes = bytes;
  }

  /** A buffer with room for `needed` bytes, if there is memory for that. Otherwise as it is, but at least a small one. */
  #grown(buffer: Buffer<ArrayBuffer>, used: number, needed: number, limit: number): Buffer<ArrayBuffer> {
    if (needed <= buffer.length) return buffer;
    const length = Math.min(limit, Math.max(needed, 2 * buffer.length));
    const hasMemory = length <= SMALL_BYTES || this.#take(length - buffer.length);
    return withRoom(buffer, used, hasMemory ? length : Math.min(needed, SMALL_BYTES), limit);
  }

  /** Makes the second half of the head, which is full, the tail. */
  #split(): void {
    const half = Math.ceil(this.#headBytes / 2);
    this.#tail = this.#head.subarray(half, this.#headBytes);
    this.#head = this.#head.subarray(0, half);
    this.#headBytes = this.#headLimit = half;
    this.#tailBytes = this.#tailLimit = this.#tail.length;
    this.#tailEnd = 0;
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
