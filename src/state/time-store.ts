import type { Database } from "./database.ts";

/** A moment by every clock there is. All in milliseconds. */
export interface TimeAnchor {
  readonly serviceMs: number;
  readonly monotonicMs: number;
  /** Which run of the machine `monotonicMs` counts in. */
  readonly bootId: string;
  readonly wallMs: number;
}

/** Keeps the last moment that the service saw. */
export class TimeStore {
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
