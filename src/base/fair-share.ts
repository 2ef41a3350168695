interface Share<T> {
  /** Oldest first, with their sizes. */
  readonly items: Map<T, number>;
  sum: number;
}

/**
 * Sums the sizes of items of several owners that share one limit. Beyond the limit, the oldest item of the owner with
 * the most is removed, so that no owner can push out another's items.
 */
export class FairShare<T> {
  readonly #shares = new Map<string, Share<T>>();
  #sum = 0;

  /** Adds an item, or changes its size and makes it the newest. */
  set(owner: string, item: T, size = 1): void {
    this.delete(owner, item);
    const share = this.#shares.get(owner) ?? { items: new Map(), sum: 0 };
    this.#shares.set(owner, share);
    share.items.set(item, size);
    share.sum += size;
    this.#sum += size;
  }

  /** Removes an item; does nothing if there is no such item. */
  delete(owner: string, item: T): void {
    const share = this.#shares.get(owner);
    const size = share?.items.get(item);
    if (share === undefined || size === undefined) return;
    share.items.delete(item);
    share.sum -= size;
    this.#sum -= size;
    if (share.items.size === 0) this.#shares.delete(owner);
  }

  /** Removes and returns items, one after another, while the sum exceeds `max`. */
  *beyond(max: number): Generator<{ readonly owner: string; readonly item: T }> {
    while (this.#sum > max) {
      const [owner, share] = this.#largest();
      const [oldest] = share.items.keys();
      const item = oldest as T;
      this.delete(owner, item);
      yield { owner, item };
    }
  }

  #largest(): [string, Share<T>] {
    return [...this.#shares].reduce((most, next) => (next[1].sum > most[1].sum ? next : most));
  }
}
