import type { JsonObject } from "../base/json.ts";
import type { Database } from "../state/database.ts";

/** A session as it is kept over a restart. Times are wall milliseconds. */
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
  /** Whether the sandbox was made for the session and goes with it. */
  readonly ownsSandbox: boolean;
  /** Empty: none. */
  readonly workspaceId: string;
  readonly ttlMs: number;
  readonly createTimeMs: number;
  readonly lastUsedTimeMs: number;
  /** The same in service time: see `ServiceTime`. */
  readonly lastUsedAtMs: number;
  /** Whether it belongs to one call, which has ended with the service that ran it. */
  readonly temporary: boolean;
  /** Whether it was ready to be used; where not, nobody was told of it. */
  readonly initialized: boolean;
}

/** What is kept of sessions. Synchronous: a write takes tens of microseconds. */
export class SessionStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Every session, oldest first. */
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

  /** Adds a session, or replaces what is kept of it. */
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

  /** Notes when a session was last used. */
  touch(sessionId: string, use: Pick<StoredSession, "lastUsedTimeMs" | "lastUsedAtMs">): void {
    this.#database.transaction(() =>
      this.#database
        .prepare("UPDATE sessions SET used_ms = ?, used_at = ? WHERE session_id = ?")
        .run(use.lastUsedTimeMs, use.lastUsedAtMs, sessionId),
    );
  }

  /** Forgets a session; one that is not there is forgotten already. */
  delete(sessionId: string): void {
    this.#database.transaction(() =>
      this.#database.prepare("DELETE FROM sessions WHERE session_id = ?").run(sessionId),
    );
  }
}
