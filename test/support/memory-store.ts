import { SqliteRunStore } from "../../src/runs/store.ts";
import { SqliteSandboxStore } from "../../src/sandboxes/store.ts";
import { Database } from "../../src/state/database.ts";
import type { StateStore } from "../../src/state/durable-state.ts";
import { SqliteEventStore } from "../../src/state/event-store.ts";
import { migrate } from "../../src/state/migrations.ts";
import { SqliteRequestStore } from "../../src/state/request-store.ts";
import { SqliteTimeStore } from "../../src/state/time-store.ts";

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
