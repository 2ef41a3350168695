import { type ClientSettings, Connection, type Link } from "./connection.ts";
import { Runs } from "./runs.ts";
import { Sandboxes } from "./sandboxes.ts";
import { Sessions } from "./sessions.ts";
import type { Worker } from "./worker.ts";
import { Workspaces } from "./workspaces.ts";

/**
 * A client of a Berth service on any platform; `Berth` is the one for this platform. The first call connects.
 *
 * While the service cannot be reached, the client retries calls that are safe to repeat, for `retryForMs`: those that
 * read, and those with a request id, which the service carries out once. The client sets a request id for calls that
 * create, change or remove something, and you may set one for what you run. All other calls are made once.
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
  /** Supervised sequences of many steps. */
  readonly runs: Runs;

  /** @param token returns the token to send with a call; default: that of the settings */
  constructor(link: Link, settings: ClientSettings, token: () => string | undefined = () => settings.token) {
    this.connection = new Connection(link, settings, token);
    this.sandboxes = new Sandboxes(this.connection);
    this.sessions = new Sessions(this.connection);
    this.workspaces = new Workspaces(this.connection);
    this.runs = new Runs(this.connection);
  }

  /** The service's address, as given. */
  get address(): string {
    return this.connection.address;
  }

  /** A worker, whose sessions `berth.sessions` keeps, by an id that you choose; by default a new one. */
  worker(workerId?: string): Worker {
    return this.sessions.worker(workerId);
  }

  /** Ends commands whose output is still being read, creates that still run, and the connection. Idempotent. */
  close(): Promise<void> {
    return this.connection.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
