/**
 * An owner may have this many times as many places as are free: nine tenths of all if it is the only owner, and fewer
 * if others have many too.
 */
const MAX_OF_FREE = 9;

/** A number of places that owners share. No owner can take all of them, so that others always find some. */
export class SharedPlaces {
  readonly #max: number;
  readonly #taken = new Map<string, number>();
  #sum = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** Number of places that owners have together. */
  get taken(): number {
    return this.#sum;
  }

  /** Number of free places. */
  get free(): number {
    return this.#max - this.#sum;
  }

  /** Number of places that an owner has. */
  of(owner: string): number {
    return this.#taken.get(owner) ?? 0;
  }

  /** Whether an owner may take `count` places, the last of them too. */
  hasRoomFor(owner: string, count = 1): boolean {
    return this.of(owner) + count - 1 < MAX_OF_FREE * (this.free - count + 1);
  }

  /** Takes places, even if there is no room. */
  take(owner: string, count = 1): void {
    this.#sum += count;
    this.#taken.set(owner, this.of(owner) + count);
  }

  giveBack(owner: string, count = 1): void {
    this.#sum -= count;
    const left = this.of(owner) - count;
    if (left > 0) this.#taken.set(owner, left);
    else this.#taken.delete(owner);
  }
}
