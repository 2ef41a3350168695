import type { Clock } from "../base/clock.ts";
import type { JsonObject } from "../base/json.ts";
import type { Database } from "../state/database.ts";
import type { WriteBehind } from "../state/write-behind.ts";
import type { RequestedSession, SessionSecrets } from "./session.ts";

/** What is kept about a session across restarts. Times are wall milliseconds. */
export interface StoredSession {
  readonly sessionId: string;
  readonly name: string;
  readonly owner: string;
  readonly workerId: string;
  readonly resourceType: string;
  readonly config: JsonObject;
  readonly customName: string;
  readonly sandboxId: string;
  readonly generation: number;
  /** The sandbox that its creator named, with its generation if that was named too. Undefined: one of its own. */
  readonly sandbox?: RequestedSession["sandbox"];
  /** Whether the sandbox was created for the session and is deleted with it. */
  readonly ownsSandbox: boolean;
  /** Empty: none. */
  readonly workspaceId: string;
  readonly ttlMs: number;
  readonly createTimeMs: number;
  readonly lastUsedTimeMs: number;
  /** The same moment in service time: see `ServiceTime`. */
  readonly lastUsedAtMs: number;
  /** Whether it belongs to one call, which ended with the service that ran it. */
  readonly temporary: boolean;
  /** Whether it was ready for use. If not, no client knows it. */
  readonly initialized: boolean;
  /** Names, never values. */
  readonly secrets?: SessionSecrets | undefined;
}

type OlderSession = Omit<StoredSession, "initialized"> & Partial<StoredSession>;

/** When a session was last used: in wall time, and in service time. */
export type LastUse = Pick<StoredSession, "lastUsedTimeMs" | "lastUsedAtMs">;

/** The sessions table. Synchronous: a write takes tens of microseconds. */
export class SessionStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Every session, oldest first. Reads one at a time, because they can be large. They may be changed meanwhile. */
  *load(): Generator<StoredSession> {
    const ids = this.#database
      .prepare("SELECT session_id FROM sessions ORDER BY created_ms, session_id")
      .all();
    const read = this.#database.prepare(
      "SELECT session, used_ms, used_at FROM sessions WHERE session_id = ?",
    );
    for (const { session_id } of ids) {
      const row = read.get(session_id as string);
      if (row === undefined) continue;
      yield {
        // Versions that did not store this stored a session only once it was initialized.
        initialized: true,
        ...(JSON.parse(this.#database.seal.openText(row.session)) as OlderSession),
        lastUsedTimeMs: Number(row.used_ms),
        lastUsedAtMs: Number(row.used_at),
      };
    }
  }

  /** Adds or replaces a session. */
  put(session: StoredSession): void {
    const { sessionId, createTimeMs, lastUsedTimeMs, lastUsedAtMs } = session;
    this.#database.transaction(() =>
      this.#database
        .prepare(
          "INSERT OR REPLACE INTO sessions (session_id, created_ms, used_ms, used_at, session) VALUES (?, ?, ?, ?, ?)",
        )
        .run(
          sessionId,
          createTimeMs,
          lastUsedTimeMs,
          lastUsedAtMs,
          this.#database.seal.text(JSON.stringify(session)),
        ),
    );
  }

  /** Stores when a session was last used. */
  putUsed(sessionId: string, use: LastUse): void {
    this.#database.transaction(() =>
      this.#database
        .prepare("UPDATE sessions SET used_ms = ?, used_at = ? WHERE session_id = ?")
        .run(use.lastUsedTimeMs, use.lastUsedAtMs, sessionId),
    );
  }

  /** Removes a session. Does nothing if there is none. */
  remove(sessionId: string): void {
    this.#database.transaction(() =>
      this.#database.prepare("DELETE FROM sessions WHERE session_id = ?").run(sessionId),
    );
  }
}

/** How far the stored last use of a session may lag behind. */
export const USE_KEPT_EVERY_MS = 5_000;

interface SessionJournalParts {
  readonly store: SessionStore;
  readonly writeBehind: WriteBehind;
  readonly clock: Clock;
}

/** A session and when it was last used. */
interface UsedSession {
  readonly sessionId: string;
  readonly lastUse: LastUse;
}

/** Stores what a restart needs to know about sessions. */
export class SessionJournal {
  readonly #parts: SessionJournalParts;
  readonly #usedAtMs = new WeakMap<UsedSession, number>();

  constructor(parts: SessionJournalParts) {
    this.#parts = parts;
  }

  /** The sessions of earlier runs of the service, oldest first. See {@link SessionStore.load}. */
  load(): Iterable<StoredSession> {
    return this.#parts.store.load();
  }

  /** Stores a session. @throws `NO_SPACE` */
  keep(session: StoredSession): void {
    this.#parts.store.put(session);
  }

  /** Stores in the background that a session was used, at most once per {@link USE_KEPT_EVERY_MS}. */
  used(session: UsedSession): void {
    const now = this.#parts.clock.monotonicMs();
    if (now - (this.#usedAtMs.get(session) ?? Number.NEGATIVE_INFINITY) < USE_KEPT_EVERY_MS) return;
    this.#usedAtMs.set(session, now);
    this.keepLastUse(session);
  }

  /** Stores in the background when a session was last used. */
  keepLastUse({ sessionId, lastUse }: UsedSession): void {
    const { store, writeBehind } = this.#parts;
    writeBehind.add(keyOf(sessionId), () => store.putUsed(sessionId, lastUse));
  }

  /** Deletes an ended session from the store: now, or, if the disk is full, as soon as it can. */
  forget(sessionId: string): void {
    const { store, writeBehind } = this.#parts;
    try {
      store.remove(sessionId);
      writeBehind.drop(keyOf(sessionId));
    } catch {
      writeBehind.add(keyOf(sessionId), () => store.remove(sessionId));
    }
  }
}

function keyOf(sessionId: string): string {
  return `session ${sessionId}`;
}
