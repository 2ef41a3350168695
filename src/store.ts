import { randomBase32 } from "./base/ids.ts";
import { ProcessStore } from "./processes/store.ts";
import { RunStore } from "./runs/store.ts";
import type { SandboxEventBody } from "./sandboxes/sandbox.ts";
import { SandboxStore } from "./sandboxes/store.ts";
import { SessionStore } from "./sessions/store.ts";
import { DataDir, inspectFile } from "./state/data-dir.ts";
import { Database, type Transaction } from "./state/database.ts";
import { EventStore } from "./state/event-store.ts";
import { Instance } from "./state/instance.ts";
import { RequestStore } from "./state/request-store.ts";
import { migrate } from "./state/schema.ts";
import { TimeStore } from "./state/service-time.ts";
import { WorkspaceStore } from "./workspaces/store.ts";

/** All that the service keeps, in one SQLite file in a directory that it holds alone. */
export class Store {
  /** Id of this service, for the labels of all that it makes. The same for the life of the data directory. */
  readonly instance: string;
  readonly runs: RunStore;
  readonly sandboxes: SandboxStore;
  readonly events: EventStore<SandboxEventBody>;
  readonly time: TimeStore;
  readonly requests: RequestStore;
  readonly processes: ProcessStore;
  readonly sessions: SessionStore;
  readonly workspaces: WorkspaceStore;
  readonly #dataDir: DataDir;
  readonly #database: Database;

  private constructor(dataDir: DataDir, database: Database, instance: string | undefined) {
    this.#dataDir = dataDir;
    this.#database = database;
    this.runs = new RunStore(database);
    this.sessions = new SessionStore(database);
    this.workspaces = new WorkspaceStore(database);
    this.instance = new Instance(database).claim(instance ?? randomBase32(12), instance !== undefined);
    this.sandboxes = new SandboxStore(database);
    this.events = new EventStore(database);
    this.time = new TimeStore(database);
    this.processes = new ProcessStore(database);
    this.requests = new RequestStore(database);
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
  static open(directory: string, { instance }: { readonly instance?: string | undefined } = {}): Store {
    const dataDir = DataDir.hold(directory);
    let database: Database | undefined;
    try {
      const file = dataDir.database;
      inspectFile(file);
      dataDir.makeDatabasePrivate();
      database = Database.open(file);
      migrate(database);
      return new Store(dataDir, database, instance);
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
