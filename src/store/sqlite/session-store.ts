import type { SessionStore, StoredSession } from "../../core/ports/session-store.ts";
import type { Database } from "./database.ts";

/** Sessions in SQLite: a row each, all but what changes as JSON. */
export class SqliteSessionStore implements SessionStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  all(): StoredSession[] {
    const rows = this.#database
      .prepare("SELECT session, used_ms FROM sessions ORDER BY created_ms, session_id")
      .all();
    return rows.map(({ session, used_ms }) => ({
      ...(JSON.parse(String(session)) as StoredSession),
      lastUsedTimeMs: Number(used_ms),
    }));
  }

  put(session: StoredSession): void {
    this.#database.transaction(() =>
      this.#database
        .prepare("INSERT OR REPLACE INTO sessions (session_id, created_ms, used_ms, session) VALUES (?, ?, ?, ?)")
        .run(session.sessionId, session.createTimeMs, session.lastUsedTimeMs, JSON.stringify(session)),
    );
  }

  touch(sessionId: string, lastUsedTimeMs: number): void {
    this.#database.transaction(() =>
      this.#database
        .prepare("UPDATE sessions SET used_ms = ? WHERE session_id = ?")
        .run(lastUsedTimeMs, sessionId),
    );
  }

  delete(sessionId: string): void {
    this.#database.transaction(() =>
      this.#database.prepare("DELETE FROM sessions WHERE session_id = ?").run(sessionId),
    );
  }
}
