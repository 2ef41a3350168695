/**
 * An owner may have this many times as many places as are left: nine tenths of all where it is alone, and less where
 * others have many too.
 */
const MAX_OF_FREE = 9;

/** A number of places that owners share, of which each finds one as long as others leave it to: none takes them all. */
export class SharedPlaces {
  readonly #max: number;
  readonly #taken = new Map<string, number>();
  #sum = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** How many are left. */
  get free(): number {
    return this.#max - this.#sum;
  }

  /** How many an owner has. */
  of(owner: string): number {
    return this.#taken.get(owner) ?? 0;
  }

  /** Whether an owner may take one more. */
  hasRoomFor(owner: string): boolean {
    return this.of(owner) < MAX_OF_FREE * this.free;
  }

  /** Takes one, also where there is no room. */
  take(owner: string): void {
    this.#sum++;
    this.#taken.set(owner, this.of(owner) + 1);
  }

  giveBack(owner: string): void {
    this.#sum--;
    const left = this.of(owner) - 1;
    if (left > 0) this.#taken.set(owner, left);
    else this.#taken.delete(owner);
  }
}
