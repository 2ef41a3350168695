/** How long an OOM kill may explain the ends of processes after it was found: the reports of several ends can be late. */
const EXPLAINS_MS = 1_000;
/** How long a count serves the starts of further processes. */
const COUNTED_MS = 50;

/**
 * Which OOM kills of a sandbox have explained the ends of its processes. The kernel only counts them: it does not say
 * what it has killed. Counts are NaN if there are none.
 */
export class OomKills {
  /** How many explain no later end. */
  #seen: number;
  /** How many there were at the last look that found more of them, and when that was. */
  #found = 0;
  #foundAtMs = 0;
  /** How many there were when a process last started, and when that was looked up. */
  #counted: Promise<number | undefined> | undefined;
  #countedAtMs = 0;

  /** @param seen how many explain no later end. Infinity: those of the first look. */
  constructor(seen = 0) {
    this.#seen = seen;
  }

  /** Whether there are kills that explain nothing yet. From then on all do. */
  takeAll(count: number): boolean {
    this.#look(count);
    const isNew = count > this.#seen;
    if (isNew) this.#seen = count;
    return isNew;
  }

  /**
   * The same for a process that SIGKILL has ended. Takes only one kill, because the same shortage may have ended others,
   * whose ends are not reported yet.
   * @param before how many there were before the process started
   */
  takeOne(count: number, before: number): boolean {
    this.#look(count);
    const explained = Math.max(this.#seen, before);
    const isNew = count > explained;
    if (isNew) this.#seen = explained + 1;
    return isNew;
  }

  /** The count that `read` returns, as of at most a moment ago: each start of a process asks for it. */
  countAtStart(read: () => Promise<number | undefined>): Promise<number | undefined> {
    const nowMs = performance.now();
    if (this.#counted !== undefined && nowMs - this.#countedAtMs < COUNTED_MS) return this.#counted;
    this.#countedAtMs = nowMs;
    this.#counted = read();
    return this.#counted;
  }

  #look(count: number): void {
    const nowMs = performance.now();
    if (this.#seen === Number.POSITIVE_INFINITY && !Number.isNaN(count)) this.#seen = count;
    if (nowMs - this.#foundAtMs > EXPLAINS_MS) this.#seen = Math.max(this.#seen, this.#found);
    if (!(count > this.#found)) return;
    this.#found = count;
    this.#foundAtMs = nowMs;
  }
}
