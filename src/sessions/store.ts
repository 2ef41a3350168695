import type { Database } from "../state/database.ts";
import type { SessionStore, StoredSession } from "./store-port.ts";

/** Sessions in SQLite: a row each, all but what changes as JSON. */
export class SqliteSessionStore implements SessionStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  all(): StoredSession[] {
    const rows = this.#database
      .prepare("SELECT session, used_ms, used_at FROM sessions ORDER BY created_ms, session_id")
      .all();
    return rows.map(({ session, used_ms, used_at }) => ({
      ...(JSON.parse(String(session)) as StoredSession),
      lastUsedTimeMs: Number(used_ms),
      lastUsedAtMs: Number(used_at),
    }));
  }

  put(session: StoredSession): void {
    const { sessionId, createTimeMs, lastUsedTimeMs, lastUsedAtMs } = session;
    this.#database.transaction(() =>
      this.#database
        .prepare(
          "INSERT OR REPLACE INTO sessions (session_id, created_ms, used_ms, used_at, session) VALUES (?, ?, ?, ?, ?)",
        )
        .run(sessionId, createTimeMs, lastUsedTimeMs, lastUsedAtMs, JSON.stringify(session)),
    );
  }

  touch(sessionId: string, use: Pick<StoredSession, "lastUsedTimeMs" | "lastUsedAtMs">): void {
    this.#database.transaction(() =>
      this.#database
        .prepare("UPDATE sessions SET used_ms = ?, used_at = ? WHERE session_id = ?")
        .run(use.lastUsedTimeMs, use.lastUsedAtMs, sessionId),
    );
  }

  delete(sessionId: string): void {
    this.#database.transaction(() =>
      this.#database.prepare("DELETE FROM sessions WHERE session_id = ?").run(sessionId),
    );
  }
}
