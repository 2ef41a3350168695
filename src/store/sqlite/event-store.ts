import type { EventStore } from "../../core/ports/sandbox-store.ts";
import type { SandboxEvent, SandboxHappening } from "../../core/sandbox/sandbox-event.ts";
import type { Database } from "./database.ts";

/** Events in SQLite, which remembers the newest sequence also when all of them are gone. */
export class SqliteEventStore implements EventStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  load(limit: number): SandboxEvent[] {
    const newest = this.#database.prepare("SELECT * FROM events ORDER BY sequence DESC LIMIT ?").all(limit);
    return newest.reverse().map((row) => ({
      sequence: Number(row.sequence),
      timeMs: Number(row.time_ms),
      owner: String(row.owner),
      sandboxId: String(row.sandbox_id),
      generation: Number(row.generation),
      happening: JSON.parse(String(row.happening)) as SandboxHappening,
    }));
  }

  last(): number {
    const row = this.#database.prepare("SELECT seq FROM sqlite_sequence WHERE name = 'events'").get();
    return Number(row?.seq ?? 0);
  }

  append({ sequence, timeMs, owner, sandboxId, generation, happening }: SandboxEvent): void {
    this.#database
      .prepare(
        "INSERT INTO events (sequence, time_ms, owner, sandbox_id, generation, happening) VALUES (?, ?, ?, ?, ?, ?)",
      )
      .run(sequence, timeMs, owner, sandboxId, generation, JSON.stringify(happening));
  }

  trim(before: number): void {
    this.#database.prepare("DELETE FROM events WHERE sequence < ?").run(before);
  }
}
