import { BerthError } from "../base/errors.ts";
import type { Database } from "./database.ts";

/** The id of the service whose data this is. */
export class Instance {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /**
   * The id that is kept; `wanted` where none was yet.
   * @param insist whether another one than `wanted` is refused.
   * @throws `INVALID_ARGUMENT`
   */
  claim(wanted: string, insist: boolean): string {
    this.#database
      .prepare("INSERT INTO instance (only_row, instance_id) VALUES (1, ?) ON CONFLICT DO NOTHING")
      .run(wanted);
    const kept = String(this.#database.prepare("SELECT instance_id FROM instance").get()?.instance_id);
    if (!insist || kept === wanted) return kept;
    throw new BerthError(
      "INVALID_ARGUMENT",
      `--instance: the data directory is that of the instance ${kept}. Leave --instance out, or name another --data-dir.`,
      { metadata: { field: "instance" } },
    );
  }
}
