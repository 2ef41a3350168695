import { type ClientSettings, Connection, type Link } from "./connection.ts";
import { Runs } from "./runs.ts";
import { Sandboxes } from "./sandboxes.ts";
import { Sessions } from "./sessions.ts";
import type { Worker } from "./worker.ts";
import { Workspaces } from "./workspaces.ts";

/**
 * A client of a Berth service, on any platform; `Berth` is the one of this platform. The connection is made by the
 * first call.
 *
 * Calls that are safe to make twice are made again while the service cannot be reached, for `retryForMs`: those that
 * read, and those under a request id, which makes the service do them once. The client sets one for what is made,
 * changed or removed, and you may for what is run. All others are made once.
 */
export class BerthClient implements AsyncDisposable {
  /** The connection; its fields are the generated clients of `@berth/client/v1/…`. */
  readonly connection: Connection;
  /** Places to run commands. */
  readonly sandboxes: Sandboxes;
  /** Stateful resources of workers, and their tools. */
  readonly sessions: Sessions;
  /** Directories that outlive sandboxes. */
  readonly workspaces: Workspaces;
  /** Executions of many steps. */
  readonly runs: Runs;

  constructor(link: Link, settings: ClientSettings) {
    this.connection = new Connection(link, settings);
    this.sandboxes = new Sandboxes(this.connection);
    this.sessions = new Sessions(this.connection);
    this.workspaces = new Workspaces(this.connection);
    this.runs = new Runs(this.connection);
  }

  /** Where the service is, as it was given. */
  get address(): string {
    return this.connection.address;
  }

  /** A worker, whose sessions `berth.sessions` keeps, by an id of your own; by default a new one. */
  worker(workerId?: string): Worker {
    return this.sessions.worker(workerId);
  }

  /** Ends commands that are still read, and the connection. Idempotent. */
  close(): Promise<void> {
    return this.connection.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
