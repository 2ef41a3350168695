import type { StateStore } from "../../src/core/state/durable-state.ts";
import { Database } from "../../src/store/sqlite/database.ts";
import { SqliteEventStore } from "../../src/store/sqlite/event-store.ts";
import { migrate } from "../../src/store/sqlite/migrations.ts";
import { SqliteRequestStore } from "../../src/store/sqlite/request-store.ts";
import { SqliteRunStore } from "../../src/store/sqlite/run-store.ts";
import { SqliteSandboxStore } from "../../src/store/sqlite/sandbox-store.ts";
import { SqliteTimeStore } from "../../src/store/sqlite/time-store.ts";

/** SQLite without a file: for tests that need a store and no disk. It goes on for as many services as are begun on it. */
export function memoryStore(): StateStore & { readonly runs: SqliteRunStore } {
  const database = Database.open(":memory:");
  migrate(database);
  return {
    transaction: (work) => database.transaction(work),
    sandboxes: new SqliteSandboxStore(database),
    events: new SqliteEventStore(database),
    time: new SqliteTimeStore(database),
    runs: new SqliteRunStore(database),
    requests: new SqliteRequestStore(database),
  };
}
