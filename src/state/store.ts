import { randomBase32 } from "../base/ids.ts";
import { SqliteProcessStore } from "../processes/store.ts";
import { SqliteRunStore } from "../runs/store.ts";
import { SqliteSandboxStore } from "../sandboxes/store.ts";
import type { Transaction } from "../sandboxes/store-port.ts";
import { SqliteSessionStore } from "../sessions/store.ts";
import { SqliteWorkspaceStore } from "../workspaces/store.ts";
import { DataDir } from "./data-dir.ts";
import { Database } from "./database.ts";
import { SqliteEventStore } from "./event-store.ts";
import { inspectFile } from "./inspect.ts";
import { SqliteInstance } from "./instance.ts";
import { migrate } from "./migrations.ts";
import { SqliteRequestStore } from "./request-store.ts";
import { SqliteTimeStore } from "./time-store.ts";

/** All that the service keeps, in one SQLite file in a directory that it holds alone. */
export class SqliteStore {
  /** Id of this service, for the labels of all that it makes. The same for the life of the data directory. */
  readonly instance: string;
  readonly runs: SqliteRunStore;
  readonly sandboxes: SqliteSandboxStore;
  readonly events: SqliteEventStore;
  readonly time: SqliteTimeStore;
  readonly requests: SqliteRequestStore;
  readonly processes: SqliteProcessStore;
  readonly sessions: SqliteSessionStore;
  readonly workspaces: SqliteWorkspaceStore;
  readonly #dataDir: DataDir;
  readonly #database: Database;

  private constructor(dataDir: DataDir, database: Database, instance: string | undefined) {
    this.#dataDir = dataDir;
    this.#database = database;
    this.runs = new SqliteRunStore(database);
    this.sessions = new SqliteSessionStore(database);
    this.workspaces = new SqliteWorkspaceStore(database);
    this.instance = new SqliteInstance(database).claim(instance ?? randomBase32(12), instance !== undefined);
    this.sandboxes = new SqliteSandboxStore(database);
    this.events = new SqliteEventStore(database);
    this.time = new SqliteTimeStore(database);
    this.processes = new SqliteProcessStore(database);
    this.requests = new SqliteRequestStore(database);
  }

  /** Makes several writes one. */
  readonly transaction: Transaction = (work) => this.#database.transaction(work);

  /**
   * Opens the store of a data directory, which is made where it is missing.
   * Where that fails, what is in the directory stays as it was.
   * @param instance id to take, or to insist on; undefined: the one it has, else a random one.
   * @throws `INVALID_ARGUMENT` for a directory that cannot be written, is held by another service, or holds what this
   *   version cannot read.
   */
  static open(directory: string, { instance }: { readonly instance?: string | undefined } = {}): SqliteStore {
    const dataDir = DataDir.hold(directory);
    let database: Database | undefined;
    try {
      const file = dataDir.database;
      inspectFile(file);
      dataDir.makeDatabasePrivate();
      database = Database.open(file);
      migrate(database);
      return new SqliteStore(dataDir, database, instance);
    } catch (error) {
      database?.close();
      dataDir.release();
      throw error;
    }
  }

  close(): void {
    this.#database.close();
    this.#dataDir.release();
  }
}
