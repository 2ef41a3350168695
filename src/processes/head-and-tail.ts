/** Keeps the first and the last bytes of a stream, half of `limit` each, and counts those in between. */
export class HeadAndTail {
  readonly #headLimit: number;
  readonly #tailLimit: number;
  #head: Uint8Array[] = [];
  #headBytes = 0;
  #tail: Uint8Array[] = [];
  #tailBytes = 0;
  #skipped = 0;

  constructor(limit: number) {
    this.#headLimit = Math.ceil(limit / 2);
    this.#tailLimit = limit - this.#headLimit;
  }

  append(data: Uint8Array): void {
    const room = this.#headLimit - this.#headBytes;
    const fitsHead =
      this.#tailBytes === 0 && this.#skipped === 0 ? data.subarray(0, room) : data.subarray(0, 0);
    if (fitsHead.length > 0) {
      this.#head.push(fitsHead);
      this.#headBytes += fitsHead.length;
    }
    const rest = data.subarray(fitsHead.length);
    if (rest.length === 0) return;
    this.#tail.push(rest);
    this.#tailBytes += rest.length;
    let first = this.#tail[0];
    let dropped = 0;
    while (first !== undefined && this.#tailBytes - first.length >= this.#tailLimit) {
      dropped++;
      this.#tailBytes -= first.length;
      this.#skipped += first.length;
      first = this.#tail[dropped];
    }
    if (dropped > 0) this.#tail = this.#tail.slice(dropped);
  }

  /** Counts bytes that were lost earlier. Drops the tail kept so far, because it precedes them. */
  skip(bytes: number): void {
    this.#skipped += bytes + this.#tailBytes;
    this.#tail = [];
    this.#tailBytes = 0;
  }

  /**
   * Returns the head and tail joined, and the range of missing bytes between them, from `from` up to but excluding
   * `to`.
   */
  result(): {
    readonly data: Buffer;
    readonly gap: { readonly from: number; readonly to: number } | undefined;
  } {
    const surplus = Math.max(0, this.#tailBytes - this.#tailLimit);
    const missing = this.#skipped + surplus;
    const gap = missing > 0 ? { from: this.#headBytes, to: this.#headBytes + missing } : undefined;
    // Less than the first piece, or that would have been dropped.
    const tail = this.#tail.map((piece, index) => (index === 0 ? piece.subarray(surplus) : piece));
    return { data: Buffer.concat([...this.#head, ...tail]), gap };
  }
}
