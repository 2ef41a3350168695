import { Database } from "../../src/state/database.ts";
import { migrate } from "../../src/state/schema.ts";

let newest: string | undefined;

/**
 * A database of the newest schema, without a file. A process runs the migrations once: together they take three times
 * as long as creating what they result in.
 */
export function memoryDatabase(): Database {
  newest ??= newestSchema();
  const database = Database.open(":memory:");
  database.exec(newest);
  return database;
}

/** The statements that create what all migrations result in. */
function newestSchema(): string {
  const migrated = Database.open(":memory:");
  migrate(migrated);
  const objects = migrated
    .prepare(
      "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
    )
    .all();
  const pragmas = ["application_id", "user_version"].map((name) => {
    const value = migrated.prepare(`PRAGMA ${name}`).get()?.[name];
    return `PRAGMA ${name} = ${value}`;
  });
  migrated.close();
  return ["BEGIN", ...objects.map(({ sql }) => sql), ...pragmas, "COMMIT"].join(";\n");
}
