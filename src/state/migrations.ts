import type { Database } from "./database.ts";
import {
  ANSWER_BYTES_SCHEMA,
  EVENT_BODY_SCHEMA,
  EVENT_GAPS_SCHEMA,
  INSTANCE_SCHEMA,
  PROCESSES_SCHEMA,
  REQUESTS_SCHEMA,
  RUN_LISTS_SCHEMA,
  RUNS_SCHEMA,
  SANDBOXES_SCHEMA,
  SESSIONS_SCHEMA,
  WORKSPACES_SCHEMA,
} from "./schema.ts";

/** Every change of the schema since the first, oldest first: a database of version n has had the first n. */
export const MIGRATIONS: readonly string[] = [
  INSTANCE_SCHEMA,
  SANDBOXES_SCHEMA,
  RUNS_SCHEMA,
  REQUESTS_SCHEMA,
  PROCESSES_SCHEMA,
  WORKSPACES_SCHEMA,
  SESSIONS_SCHEMA,
  ANSWER_BYTES_SCHEMA,
  RUN_LISTS_SCHEMA,
  EVENT_GAPS_SCHEMA,
  EVENT_BODY_SCHEMA,
];

/** Marks a file as Berth's: "Brth". */
export const APPLICATION_ID = 0x42727468;

/** Brings a database to the newest version. */
export function migrate(database: Database): void {
  for (let version = versionOf(database); version < MIGRATIONS.length; version++) {
    database.transaction(() => {
      database.exec(MIGRATIONS[version] ?? "");
      database.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${version + 1};`);
    });
  }
}

/** How many migrations a database has had. */
export function versionOf(database: Database): number {
  const row = database.prepare("PRAGMA user_version").get();
  return Number(row?.user_version);
}
