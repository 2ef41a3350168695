import type { Clock } from "../base/clock.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import type { SessionPlace, SessionRecord } from "./record.ts";
import type { SessionStore, StoredSession } from "./store.ts";

/** What is kept of a session's last use may be older than its last use by this much. */
export const USE_KEPT_EVERY_MS = 5_000;

/** What a {@link SessionJournal} writes to. */
export interface SessionJournalParts {
  readonly store: SessionStore;
  readonly writeBehind: WriteBehind;
  readonly clock: Clock;
}

/** Keeps what is to be known of sessions after a restart. */
export class SessionJournal {
  readonly #parts: SessionJournalParts;
  readonly #usedAtMs = new WeakMap<SessionRecord, number>();

  constructor(parts: SessionJournalParts) {
    this.#parts = parts;
  }

  /** The sessions of earlier runs, oldest first. */
  load(): StoredSession[] {
    return this.#parts.store.all();
  }

  /** Keeps a session and where it lives, or is to live. @throws `NO_SPACE` */
  keep(record: SessionRecord, place: SessionPlace): void {
    this.#parts.store.put(record.stored(place));
  }

  /** Keeps soon that a session was used, unless that was done a short while ago. */
  used(record: SessionRecord): void {
    const now = this.#parts.clock.monotonicMs();
    if (now - (this.#usedAtMs.get(record) ?? Number.NEGATIVE_INFINITY) < USE_KEPT_EVERY_MS) return;
    this.#usedAtMs.set(record, now);
    this.keepLastUse(record);
  }

  /** Keeps soon when a session was last used. */
  keepLastUse({ sessionId, lastUse }: SessionRecord): void {
    const { store, writeBehind } = this.#parts;
    writeBehind.add(keyOf(sessionId), () => store.touch(sessionId, lastUse));
  }

  /** Forgets a session that has ended: now, or where the disk takes nothing, as soon as it does. */
  forget(sessionId: string): void {
    const { store, writeBehind } = this.#parts;
    try {
      store.delete(sessionId);
      writeBehind.drop(keyOf(sessionId));
    } catch {
      writeBehind.add(keyOf(sessionId), () => store.delete(sessionId));
    }
  }
}

function keyOf(sessionId: string): string {
  return `session ${sessionId}`;
}
