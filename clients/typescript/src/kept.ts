import type { Chunk, Gap } from "./types.ts";

/** Keeps the first and the last half of at most so many bytes of a stream. */
export class Kept {
  readonly #headRoom: number;
  readonly #mostTail: number;
  readonly #head: Uint8Array[] = [];
  readonly #tail: Uint8Array[] = [];
  #headBytes = 0;
  #tailBytes = 0;
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
    const room = this.#missing === 0 ? this.#headRoom - this.#headBytes : 0;
    const head = data.subarray(0, room);
    const tail = data.subarray(head.length);
    if (head.length > 0) this.#head.push(head);
    this.#headBytes += head.length;
    if (tail.length === 0) return;
    this.#tail.push(tail);
    this.#tailBytes += tail.length;
    // Cut occasionally, so that dropped bytes are not moved for each piece.
    if (this.#tailBytes > 2 * this.#mostTail + 65_536) this.#drop(this.#mostTail);
  }

  /** Head and tail, joined, and the gap between them if bytes are missing. */
  result(): { readonly bytes: Uint8Array; readonly gap: Gap | undefined } {
    if (this.#tailBytes > this.#mostTail) this.#drop(this.#mostTail);
    const fromOffset = (this.#start ?? 0) + this.#headBytes;
    return {
      bytes: join([...this.#head, ...this.#tail]),
      gap: this.#missing === 0 ? undefined : { fromOffset, toOffset: fromOffset + this.#missing },
    };
  }

  /** Shortens the tail to so many bytes. */
  #drop(left: number): void {
    const all = join(this.#tail);
    // A copy, so that dropped bytes are freed.
    const tail = all.slice(all.length - left);
    this.#missing += all.length - tail.length;
    this.#tail.splice(0, this.#tail.length, tail);
    this.#tailBytes = tail.length;
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
