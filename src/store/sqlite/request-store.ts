import type { RequestName, RequestStore, StoredRequest } from "../../core/ports/request-store.ts";
import type { Database } from "./database.ts";

const PUT = `
  INSERT INTO requests (owner, method, request_id, fingerprint, subject, answer, expires_at)
  VALUES (?, ?, ?, ?, ?, ?, ?)
  ON CONFLICT (owner, method, request_id) DO UPDATE SET
    fingerprint = excluded.fingerprint, subject = excluded.subject,
    answer = excluded.answer, expires_at = excluded.expires_at`;

/** Requests in SQLite. */
export class SqliteRequestStore implements RequestStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  get({ owner, method, requestId }: RequestName): StoredRequest | undefined {
    const row = this.#database
      .prepare(
        "SELECT fingerprint, subject, answer, expires_at FROM requests WHERE owner = ? AND method = ? AND request_id = ?",
      )
      .get(owner, method, requestId);
    return (
      row && {
        owner,
        method,
        requestId,
        fingerprint: String(row.fingerprint),
        subject: row.subject === null ? undefined : String(row.subject),
        answer: row.answer instanceof Uint8Array ? row.answer : undefined,
        expiresAt: Number(row.expires_at),
      }
    );
  }

  put({ owner, method, requestId, fingerprint, subject, answer, expiresAt }: StoredRequest): void {
    this.#database.transaction(() =>
      this.#database
        .prepare(PUT)
        .run(owner, method, requestId, fingerprint, subject ?? null, answer ?? null, expiresAt),
    );
  }

  remove({ owner, method, requestId }: RequestName): void {
    this.#database.transaction(() =>
      this.#database
        .prepare("DELETE FROM requests WHERE owner = ? AND method = ? AND request_id = ?")
        .run(owner, method, requestId),
    );
  }

  trim(now: number, limit: number): void {
    this.#database.transaction(() => {
      this.#database.prepare("DELETE FROM requests WHERE expires_at <= ?").run(now);
      this.#database
        .prepare("DELETE FROM requests WHERE place <= (SELECT max(place) FROM requests) - ?")
        .run(limit);
    });
  }
}
