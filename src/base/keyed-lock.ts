import { Mutex } from "async-mutex";

interface Entry {
  readonly mutex: Mutex;
  /** Holder and waiters. The entry leaves the map only when there are none, so that no two callers ever hold different locks of one key. */
  users: number;
}

/**
 * One lock for each key, made on demand and dropped when nobody holds or waits
 * for it.
 *
 * Contract: the lock of a sandbox's id is held across its lifecycle changes
 * (create, pause, resume, delete, expiry), engine calls included, and across
 * nothing else: never across the pull or create of another one, and never by
 * operations such as exec, which take a lease. The lock of a session's owner,
 * worker and type is held likewise, across its resource's initialize and
 * cleanup. It is not reentrant. First come, first served.
 */
export class KeyedLock {
  readonly #entries = new Map<string, Entry>();

  /** Runs `action` while holding the lock of `key`. */
  async run<T>(key: string, action: () => Promise<T>): Promise<T> {
    const entry = this.#entries.get(key) ?? { mutex: new Mutex(), users: 0 };
    this.#entries.set(key, entry);
    entry.users++;
    try {
      return await entry.mutex.runExclusive(action);
    } finally {
      if (--entry.users === 0) this.#entries.delete(key);
    }
  }

  /** Keys that are held or waited for. */
  get size(): number {
    return this.#entries.size;
  }
}
