import { BerthError } from "./base/errors.ts";
import { randomBase32 } from "./base/ids.ts";
import { ProcessStore } from "./processes/store.ts";
import { RunStore } from "./runs/store.ts";
import type { SandboxEventBody } from "./sandboxes/sandbox.ts";
import { SandboxStore } from "./sandboxes/store.ts";
import { SessionStore } from "./sessions/store.ts";
import { Checkpoints } from "./state/checkpoints.ts";
import { DataDir, inspectFile } from "./state/data-dir.ts";
import { Database, type Transaction } from "./state/database.ts";
import { EventStore } from "./state/event-store.ts";
import { RequestStore } from "./state/request-store.ts";
import { migrate } from "./state/schema.ts";
import { TimeStore } from "./state/service-time.ts";
import { WorkspaceStore } from "./workspaces/store.ts";

/** Everything that the service stores: one SQLite file, in a directory that it holds exclusively. */
export class Store {
  /** Id of this service, for the labels of everything it creates. Never changes for a data directory. */
  readonly instance: string;
  readonly sandboxes: SandboxStore;
  readonly processes: ProcessStore;
  readonly sessions: SessionStore;
  readonly workspaces: WorkspaceStore;
  readonly runs: RunStore;
  readonly events: EventStore<SandboxEventBody>;
  readonly requests: RequestStore;
  readonly time: TimeStore;
  readonly #dataDir: DataDir;
  readonly #database: Database;
  readonly #checkpoints: Checkpoints;

  private constructor(dataDir: DataDir, database: Database, instance: string) {
    this.#dataDir = dataDir;
    this.#database = database;
    this.#checkpoints = new Checkpoints(database, dataDir.database);
    this.instance = instance;
    this.sandboxes = new SandboxStore(database);
    this.processes = new ProcessStore(database);
    this.sessions = new SessionStore(database);
    this.workspaces = new WorkspaceStore(database);
    this.runs = new RunStore(database);
    this.events = new EventStore(database);
    this.requests = new RequestStore(database);
    this.time = new TimeStore(database);
  }

  /** Combines several writes into one transaction. */
  readonly transaction: Transaction = (work) => this.#database.transaction(work);

  /**
   * Opens the store of a data directory. Creates the directory if it is missing. A failure leaves its content
   * unchanged.
   * @param instance the id to store, or that must be stored already. Undefined: the stored one, or a random one.
   * @throws `INVALID_ARGUMENT` if the directory cannot be written, is held by another service, or contains data that
   *   this version cannot read.
   */
  static open(directory: string, { instance }: { readonly instance?: string | undefined } = {}): Store {
    const dataDir = DataDir.hold(directory);
    let database: Database | undefined;
    try {
      const file = dataDir.database;
      inspectFile(file);
      dataDir.makeDatabasePrivate();
      database = Database.open(file, dataDir.seal());
      migrate(database);
      return new Store(dataDir, database, claimInstance(database, instance));
    } catch (error) {
      database?.close();
      dataDir.release();
      throw dataDir.explain(error);
    }
  }

  close(): void {
    this.#checkpoints.stop();
    this.#database.close();
    this.#dataDir.release();
  }
}

/**
 * The stored instance id. Stores `wanted`, or a random one, if there is none. @throws `INVALID_ARGUMENT` if it differs
 * from `wanted`.
 */
function claimInstance(database: Database, wanted: string | undefined): string {
  database
    .prepare("INSERT INTO instance (only_row, instance_id) VALUES (1, ?) ON CONFLICT DO NOTHING")
    .run(wanted ?? randomBase32(12));
  const stored = String(database.prepare("SELECT instance_id FROM instance").get()?.instance_id);
  if (wanted === undefined || stored === wanted) return stored;
  throw new BerthError(
    "INVALID_ARGUMENT",
    `--instance: the data directory is that of the instance ${stored}. Leave --instance out, or name another --data-dir.`,
    { metadata: { field: "instance" } },
  );
}
