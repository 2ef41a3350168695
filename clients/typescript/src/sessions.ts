import { allPages, type CallSettings, type Connection, newRequestId } from "./connection.ts";
import type { SessionInfo, Tools } from "./types.ts";
import type { ResourceType } from "./v1/session_pb.js";
import { listSessions, Worker } from "./worker.ts";

const PAGE = 1000;

/** The sessions of all workers, and the available tools. `berth.sessions`. */
export class Sessions {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** A worker, by an id that you choose; by default a new one. */
  worker(workerId = `worker-${newRequestId().slice(0, 12)}`): Worker {
    return new Worker(this.#connection, workerId);
  }

  /** The types of sessions that the service offers and their tools: of one type, or of all. */
  async tools({
    resourceType = "",
    signal,
  }: CallSettings & { readonly resourceType?: string } = {}): Promise<Tools> {
    let types: readonly ResourceType[] = [];
    const tools = await allPages(async (pageToken) => {
      const request = { resourceType, pageSize: PAGE, pageToken };
      const call = (options: object) => this.#connection.sessions.listTools(request, options);
      const page = await this.#connection.again(call, signal);
      types = page.resourceTypes;
      return { items: page.tools, nextPageToken: page.nextPageToken };
    });
    return {
      tools: tools.map(({ name, shortName, resourceType: type, description, paramsSchema = {} }) => ({
        name,
        shortName,
        resourceType: type,
        description,
        paramsSchema,
      })),
      resourceTypes: types.map(({ name, description, configSchema = {} }) => ({
        name,
        description,
        configSchema,
      })),
    };
  }

  /** Sessions, newest first: of one worker, or of all. */
  list({
    workerId = "",
    ...options
  }: CallSettings & { readonly workerId?: string } = {}): Promise<SessionInfo[]> {
    return listSessions(this.#connection, workerId, options);
  }
}
