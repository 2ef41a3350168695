import { allPages, type CallSettings, type Connection, newRequestId } from "./connection.ts";
import { duration, sandboxEvent, sandboxInfo, specMessage, stats } from "./convert.ts";
import { Sandbox } from "./sandbox.ts";
import { type Subscription, subscribe } from "./subscription.ts";
import type { SandboxEvent, SandboxInfo, SandboxSpec, Stats } from "./types.ts";
import type { CreateSandboxResponse } from "./v1/sandbox_pb.js";

const PAGE = 1000;

/** The sandboxes of a service. `berth.sandboxes`. */
export class Sandboxes {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Creates a sandbox that is ready to run commands. A missing image is pulled first. Unset options take the service's
   * defaults. A create that is aborted, or whose client is closed meanwhile, leaves nothing behind.
   *
   * `sandboxId`: an id that you choose. Such a create is not retried if the connection breaks.
   *
   * Throws IMAGE_UNAVAILABLE, SANDBOX_LIMIT, TENANT_QUOTA, SANDBOX_EXISTS, NOT_ALLOWED, INVALID_ARGUMENT, SANDBOX_START_FAILED,
   * UNSUPPORTED, NO_SPACE; for a workspace that it mounts WORKSPACE_NOT_FOUND, WORKSPACE_BROKEN, WORKSPACE_IN_USE.
   */
  async create({ sandboxId = "", signal, ...spec }: CreateOptions = {}): Promise<Sandbox> {
    const request = { sandboxId, spec: specMessage(spec), requestId: sandboxId === "" ? newRequestId() : "" };
    const call = (options: object) => this.#connection.sandboxes.createSandbox(request, options);
    // Without a request id, an aborted create is canceled. Which sandbox the id names is not certain enough to delete
    // it.
    if (sandboxId !== "") return this.#sandbox(await this.#connection.once(call, signal));
    const removal = { requestId: newRequestId(), grace: duration(0) };
    const remove = ({ sandbox }: CreateSandboxResponse, settings: object) =>
      this.#connection.sandboxes.deleteSandbox({ ...removal, sandboxId: sandbox?.sandboxId ?? "" }, settings);
    return this.#sandbox(await this.#connection.create(call, remove, signal));
  }

  /** An existing sandbox. Throws SANDBOX_NOT_FOUND. */
  async get(sandboxId: string, { signal }: CallSettings = {}): Promise<Sandbox> {
    const call = (options: object) => this.#connection.sandboxes.getSandbox({ sandboxId }, options);
    return this.#sandbox(await this.#connection.again(call, signal));
  }

  /** Every sandbox that has all of the labels, newest first; ended ones only with `showTerminated`. */
  list({ labels = {}, showTerminated = false, signal }: ListOptions = {}): Promise<SandboxInfo[]> {
    return allPages(async (pageToken) => {
      const request = { labelSelector: { ...labels }, showTerminated, pageSize: PAGE, pageToken };
      const call = (options: object) => this.#connection.sandboxes.listSandboxes(request, options);
      const { sandboxes, nextPageToken } = await this.#connection.again(call, signal);
      return { items: sandboxes.map(sandboxInfo), nextPageToken };
    });
  }

  /** Deletes a sandbox; see `Sandbox.delete`. An unknown id is not an error. */
  async delete(
    sandboxId: string,
    { graceMs, signal }: CallSettings & { readonly graceMs?: number } = {},
  ): Promise<void> {
    const request = { requestId: newRequestId(), sandboxId, grace: duration(graceMs) };
    await this.#connection.again(
      (options) => this.#connection.sandboxes.deleteSandbox(request, options),
      signal,
    );
  }

  /** The service's figures. */
  async stats({ signal }: CallSettings = {}): Promise<Stats> {
    return stats(
      await this.#connection.again((options) => this.#connection.sandboxes.getStats({}, options), signal),
    );
  }

  /**
   * The events of all sandboxes or of one: first the kept history after a sequence, then events as they happen. If the
   * connection breaks, it continues after the last event.
   */
  events({ afterSequence = 0, sandboxId = "", signal }: EventsOptions = {}): Subscription<SandboxEvent> {
    return subscribe(this.#connection, {
      connect: (last: SandboxEvent | undefined, options) => {
        const request = { afterSequence: BigInt(last?.sequence ?? afterSequence), sandboxId };
        return this.#connection.sandboxes.watchEvents(request, options);
      },
      convert: sandboxEvent,
      announced: false,
      resumes: true,
      signal,
    });
  }

  #sandbox({ sandbox }: { readonly sandbox?: ConstructorParameters<typeof Sandbox>[1] }): Sandbox {
    return new Sandbox(this.#connection, sandbox);
  }
}

/** The settings of a sandbox, and its id. */
export interface CreateOptions extends SandboxSpec, CallSettings {
  readonly sandboxId?: string | undefined;
}

/** Which sandboxes to list. */
export interface ListOptions extends CallSettings {
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly showTerminated?: boolean | undefined;
}

/** Which events to stream. */
export interface EventsOptions extends CallSettings {
  readonly afterSequence?: number | undefined;
  readonly sandboxId?: string | undefined;
}
