/** Keeps the first and the last half of at most so many bytes. */
export class Kept {
  readonly #headRoom: number;
  readonly #mostTail: number;
  readonly #head: Uint8Array[] = [];
  readonly #tail: Uint8Array[] = [];
  #headBytes = 0;
  #tailBytes = 0;
  /** Whether bytes are missing. */
  truncated = false;

  constructor(most: number) {
    this.#mostTail = Math.floor(most / 2);
    this.#headRoom = most - this.#mostTail;
  }

  /** Adds what follows. */
  add(data: Uint8Array): void {
    const room = this.#headRoom - this.#headBytes;
    const head = data.subarray(0, room);
    const tail = data.subarray(head.length);
    if (head.length > 0) this.#head.push(head);
    this.#headBytes += head.length;
    if (tail.length === 0) return;
    this.#tail.push(tail);
    this.#tailBytes += tail.length;
    // Cut occasionally, so that dropped bytes are not moved for each piece.
    if (this.#tailBytes > 2 * this.#mostTail + 65_536) this.#cut();
  }

  /** Head and tail, joined. */
  bytes(): Uint8Array {
    if (this.#tailBytes > this.#mostTail) this.#cut();
    return join([...this.#head, ...this.#tail]);
  }

  #cut(): void {
    this.truncated = true;
    const all = join(this.#tail);
    // A copy, so that dropped bytes are freed.
    const tail = all.slice(all.length - this.#mostTail);
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
