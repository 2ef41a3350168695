import type { Database } from "./database.ts";
import type { TimeAnchor, TimeStore } from "./time-store-port.ts";

/** The last moment that the service saw, in SQLite. */
export class SqliteTimeStore implements TimeStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  load(): TimeAnchor | undefined {
    const row = this.#database.prepare("SELECT * FROM service_time").get();
    return (
      row && {
        serviceMs: Number(row.service_ms),
        monotonicMs: Number(row.monotonic_ms),
        bootId: String(row.boot_id),
        wallMs: Number(row.wall_ms),
      }
    );
  }

  save({ serviceMs, monotonicMs, bootId, wallMs }: TimeAnchor): void {
    this.#database
      .prepare("INSERT OR REPLACE INTO service_time VALUES (1, ?, ?, ?, ?)")
      .run(serviceMs, monotonicMs, bootId, wallMs);
  }
}
