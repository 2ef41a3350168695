interface Share<T> {
  /** Oldest first, with their sizes. */
  readonly items: Map<T, number>;
  sum: number;
  /**
   * Its next item is the oldest. A new iterator would pass the places of all items that were removed since the map last
   * tidied up, up to twice as many as it has. Undefined: there is none, because one that is not used keeps each former
   * table of the map in memory.
   */
  oldest?: Iterator<T> | undefined;
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
    if (share === undefined || !share.items.has(item)) return;
    share.oldest = undefined;
    this.#remove(owner, share, item);
  }

  #remove(owner: string, share: Share<T>, item: T): void {
    const size = share.items.get(item) ?? 0;
    share.items.delete(item);
    share.sum -= size;
    this.#sum -= size;
    if (share.items.size === 0) this.#shares.delete(owner);
  }

  /** Removes and returns items, one after another, while the sum exceeds `max`. */
  *beyond(max: number): Generator<{ readonly owner: string; readonly item: T }> {
    while (this.#sum > max) {
      const [owner, share] = this.#largest();
      share.oldest ??= share.items.keys();
      const item = share.oldest.next().value as T;
      this.#remove(owner, share, item);
      yield { owner, item };
    }
  }

  #largest(): [string, Share<T>] {
    return [...this.#shares].reduce((most, next) => (next[1].sum > most[1].sum ? next : most));
  }
}
