import type { Database } from "../state/database.ts";

/** A process as it is kept. */
export interface StoredProcess {
  readonly processId: string;
  /** In service time, milliseconds; undefined: it runs, as far as is known. */
  readonly endedAt: number | undefined;
  /** What it is and how it ended, as text of the process layer's. */
  readonly facts: string;
  /** Where what it wrote is, as bytes of the process layer's. */
  readonly transcript: Uint8Array;
}

const PUT = `
  INSERT INTO processes (process_id, ended_at, facts, transcript) VALUES (?, ?, ?, ?)
  ON CONFLICT (process_id) DO UPDATE SET
    ended_at = excluded.ended_at, facts = excluded.facts, transcript = excluded.transcript`;

/** Keeps processes, also past the end of the service. Writes may throw `NO_SPACE`, and have changed nothing then. */
export class ProcessStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** All, oldest first. */
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
