import { Turns } from "./turns.ts";

interface Entry {
  readonly turns: Turns;
  /**
   * Number of holders and waiters. The entry is removed from the map only when there are none, so that two callers
   * never hold different locks for the same key.
   */
  users: number;
}

/**
 * One lock for each key, created on demand and dropped when nobody holds or waits for it.
 *
 * Contract: the lock of a sandbox's id is held only during its lifecycle changes (create, pause, resume, delete,
 * expiry), including calls to the engine. It is never held during the pull or create of another sandbox, and never by
 * operations such as exec, which take a lease. In the same way, the lock of a session's owner, worker and type is held
 * only during its resource's initialize, and during its end: also while that waits for calls. Not reentrant. First come, first served.
 */
export class KeyedLock {
  readonly #entries = new Map<string, Entry>();

  /**
   * Runs `action` while holding the lock of `key`. Rejects as `action` does, or with the signal's error if it is aborted
   * before that.
   */
  async run<T>(key: string, action: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const entry = this.#entries.get(key) ?? { turns: new Turns(1), users: 0 };
    this.#entries.set(key, entry);
    entry.users++;
    try {
      return await entry.turns.run(action, signal);
    } finally {
      if (--entry.users === 0) this.#entries.delete(key);
    }
  }

  /** How many hold or wait for the lock of `key`. */
  usersOf(key: string): number {
    return this.#entries.get(key)?.users ?? 0;
  }

  /** Number of keys that are held or waited for. */
  get size(): number {
    return this.#entries.size;
  }
}
