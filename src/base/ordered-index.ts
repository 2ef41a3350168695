/** A position in a list that is ordered by `at`, then by `id`. It stays valid when the element at it is removed. */
export interface Position {
  readonly at: number;
  readonly id: string;
}

/** Selects a part of a list. */
export interface Slice {
  readonly limit: number;
  /** Only elements after this position. Undefined: starting with the newest. */
  readonly after?: Position | undefined;
}

/** A part of a list. */
export interface Sliced<T> {
  readonly items: readonly T[];
  /** Where the next part starts; undefined if nothing follows. */
  readonly next: Position | undefined;
}

/** Maximum total size of the elements of a part, not counting the last one: callers accept messages of a few MiB. */
export const MAX_SLICE_BYTES = 2 * 1024 * 1024;

/** The whole list. */
export const WHOLE: Slice = { limit: Number.POSITIVE_INFINITY };

/**
 * Ordered lists of elements by key. Reading a part takes time proportional to the part, regardless of the length of the
 * list.
 */
export class OrderedIndex<T> {
  readonly #positionOf: (item: T) => Position;
  readonly #bytesOf: (item: T) => number;
  /** By key, oldest first. A new element is almost always the last one. */
  readonly #lists = new Map<string, T[]>();

  /**
   * @param positionOf must never change for an element, and must be unique.
   * @param bytesOf approximate size of an element in a list, if elements may be large
   */
  constructor(positionOf: (item: T) => Position, bytesOf: (item: T) => number = () => 0) {
    this.#positionOf = positionOf;
    this.#bytesOf = bytesOf;
  }

  add(key: string, item: T): void {
    const list = this.#lists.get(key) ?? [];
    this.#lists.set(key, list);
    list.splice(this.#countBefore(list, this.#positionOf(item)), 0, item);
  }

  /** Removes an element; does nothing if there is no such element. */
  delete(key: string, item: T): void {
    const list = this.#lists.get(key);
    const place = list && this.#countBefore(list, this.#positionOf(item));
    if (list === undefined || place === undefined || list[place] !== item) return;
    // Most elements are removed in the order in which they were added, which moves nothing.
    if (place === 0) list.shift();
    else list.splice(place, 1);
    if (list.length === 0) this.#lists.delete(key);
  }

  /** Replaces an element with one of the same position; does nothing if there is no such element. */
  replace(key: string, item: T, next: T): void {
    const list = this.#lists.get(key);
    const place = list && this.#countBefore(list, this.#positionOf(item));
    if (list !== undefined && place !== undefined && list[place] === item) list[place] = next;
  }

  /** Elements of a key after a position, newest first. Do not change the index while reading them. */
  *newestFirst(key: string, after?: Position): Generator<T> {
    const list = this.#lists.get(key) ?? [];
    const end = after === undefined ? list.length : this.#countBefore(list, after);
    for (let i = end - 1; i >= 0; i--) yield list[i] as T;
  }

  /**
   * The first elements of a key, newest first, that pass a filter. May return fewer than the limit if they are large,
   * but at least one.
   */
  slice(key: string, { limit, after }: Slice, wanted: (item: T) => boolean = () => true): Sliced<T> {
    const items: T[] = [];
    let bytes = 0;
    for (const item of this.newestFirst(key, after)) {
      if (!wanted(item)) continue;
      const isFull = items.length === limit || (limit < Number.POSITIVE_INFINITY && bytes > MAX_SLICE_BYTES);
      if (isFull) return { items, next: this.#positionOf(items.at(-1) as T) };
      items.push(item);
      bytes += this.#bytesOf(item);
    }
    return { items, next: undefined };
  }

  #countBefore(list: readonly T[], position: Position): number {
    let low = 0;
    let high = list.length;
    const last = list.at(-1);
    if (last !== undefined && isBefore(this.#positionOf(last), position)) return high;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (isBefore(this.#positionOf(list[middle] as T), position)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function isBefore(a: Position, b: Position): boolean {
  return a.at < b.at || (a.at === b.at && a.id < b.id);
}
