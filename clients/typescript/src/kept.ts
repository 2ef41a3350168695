import type { Chunk, Gap } from "./types.ts";

/** Keeps the first and the last half of at most so many bytes of a stream. */
export class Kept {
  readonly #headRoom: number;
  readonly #mostTail: number;
  readonly #head = new Bytes();
  readonly #tail = new Bytes();
  /** Bytes that are missing between head and tail. */
  #missing = 0;
  /** Offset of the first byte. Undefined before it. */
  #start: number | undefined;

  constructor(most: number) {
    this.#mostTail = Math.floor(most / 2);
    this.#headRoom = most - this.#mostTail;
  }

  /** Adds what follows. */
  add({ offset, data, lost }: Pick<Chunk, "offset" | "data" | "lost">): void {
    this.#start ??= offset - lost;
    // What was kept of the tail precedes the lost bytes: there is one gap.
    if (lost > 0) this.#drop(0);
    this.#missing += lost;
    const room = this.#missing === 0 ? this.#headRoom - this.#head.length : 0;
    this.#head.push(data.subarray(0, room));
    this.#tail.push(data.subarray(room));
    // Cut occasionally, so that what is kept is not moved for each piece.
    if (this.#tail.length > 2 * this.#mostTail + 65_536) this.#drop(this.#mostTail);
  }

  /** Head and tail, joined, and the gap between them if bytes are missing. */
  result(): { readonly bytes: Uint8Array; readonly gap: Gap | undefined } {
    if (this.#tail.length > this.#mostTail) this.#drop(this.#mostTail);
    const fromOffset = (this.#start ?? 0) + this.#head.length;
    return {
      bytes: join([this.#head.all, this.#tail.all]),
      gap: this.#missing === 0 ? undefined : { fromOffset, toOffset: fromOffset + this.#missing },
    };
  }

  /** Shortens the tail to so many bytes. */
  #drop(left: number): void {
    this.#missing += this.#tail.length - left;
    this.#tail.shorten(left);
  }
}

/** Bytes in one piece of memory, which grows: a program may write byte by byte, and each piece has memory of its own. */
class Bytes {
  #memory = new Uint8Array(0);
  length = 0;

  get all(): Uint8Array {
    return this.#memory.subarray(0, this.length);
  }

  push(piece: Uint8Array): void {
    const length = this.length + piece.length;
    if (length > this.#memory.length) {
      const memory = new Uint8Array(Math.max(length, 2 * this.#memory.length));
      memory.set(this.all);
      this.#memory = memory;
    }
    this.#memory.set(piece, this.length);
    this.length = length;
  }

  /** Drops all but so many of the last bytes. */
  shorten(left: number): void {
    this.#memory.copyWithin(0, this.length - left, this.length);
    this.length = left;
  }
}

/** All pieces in one. */
export function join(pieces: readonly Uint8Array[]): Uint8Array {
  if (pieces.length === 1 && pieces[0]) return pieces[0];
  const all = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
