import type { Database } from "../state/database.ts";
import type { ProcessStore, StoredProcess } from "./store-port.ts";

const PUT = `
  INSERT INTO processes (process_id, ended_at, facts, transcript) VALUES (?, ?, ?, ?)
  ON CONFLICT (process_id) DO UPDATE SET
    ended_at = excluded.ended_at, facts = excluded.facts, transcript = excluded.transcript`;

/** Processes in SQLite. */
export class SqliteProcessStore implements ProcessStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  load(): StoredProcess[] {
    const rows = this.#database.prepare("SELECT * FROM processes ORDER BY place").all();
    return rows.map((row) => ({
      processId: String(row.process_id),
      endedAt: row.ended_at === null ? undefined : Number(row.ended_at),
      facts: String(row.facts),
      transcript: row.transcript as Uint8Array,
    }));
  }

  put({ processId, endedAt, facts, transcript }: StoredProcess): void {
    this.#database.prepare(PUT).run(processId, endedAt ?? null, facts, transcript);
  }

  remove(processId: string): void {
    this.#database.prepare("DELETE FROM processes WHERE process_id = ?").run(processId);
  }
}
