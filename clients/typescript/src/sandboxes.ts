import { allPages, type CallSettings, type Connection, newRequestId } from "./connection.ts";
import { duration, sandboxEvent, sandboxInfo, specMessage, stats } from "./convert.ts";
import { BerthError } from "./errors.ts";
import { Sandbox } from "./sandbox.ts";
import { type Subscription, subscribe } from "./subscription.ts";
import type { SandboxEvent, SandboxInfo, SandboxSpec, Stats } from "./types.ts";

const PAGE = 1000;

/** The sandboxes of a service. `berth.sandboxes`. */
export class Sandboxes {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /**
   * Makes a sandbox that is ready to run commands. A missing image is pulled first. What is not given is the service's
   * default. A create that is given up leaves nothing.
   *
   * `sandboxId`: an id of your own. Such a create is not made again where the connection breaks.
   *
   * Throws IMAGE_UNAVAILABLE, SANDBOX_LIMIT, TENANT_QUOTA, SANDBOX_EXISTS, NOT_ALLOWED, INVALID_ARGUMENT, SANDBOX_START_FAILED,
   * UNSUPPORTED.
   */
  async create({ sandboxId = "", signal, ...spec }: CreateOptions = {}): Promise<Sandbox> {
    const request = { sandboxId, spec: specMessage(spec), requestId: sandboxId === "" ? newRequestId() : "" };
    const call = (options: object) => this.#connection.sandboxes.createSandbox(request, options);
    // Without a request id, what is given up is canceled; and which sandbox an id names is not sure enough to delete it.
    if (sandboxId !== "") return this.#sandbox(await this.#connection.once(call, signal));
    try {
      return this.#sandbox(await this.#connection.again(call, signal));
    } catch (error) {
      // The request goes on by its id. The same request again has its answer: what to delete.
      if (signal?.aborted || (BerthError.is(error) && error.code === "DEADLINE_EXCEEDED")) {
        this.#connection.later(async () =>
          this.#sandbox(await this.#connection.again(call)).delete({ graceMs: 0 }),
        );
      }
      throw error;
    }
  }

  /** A sandbox that is there. Throws SANDBOX_NOT_FOUND. */
  async get(sandboxId: string, { signal }: CallSettings = {}): Promise<Sandbox> {
    const call = (options: object) => this.#connection.sandboxes.getSandbox({ sandboxId }, options);
    return this.#sandbox(await this.#connection.again(call, signal));
  }

  /** Every sandbox that carries all of the labels, newest first; ended ones only with `showTerminated`. */
  list({ labels = {}, showTerminated = false, signal }: ListOptions = {}): Promise<SandboxInfo[]> {
    return allPages(async (pageToken) => {
      const request = { labelSelector: { ...labels }, showTerminated, pageSize: PAGE, pageToken };
      const call = (options: object) => this.#connection.sandboxes.listSandboxes(request, options);
      const { sandboxes, nextPageToken } = await this.#connection.again(call, signal);
      return { items: sandboxes.map(sandboxInfo), nextPageToken };
    });
  }

  /** Ends a sandbox; see `Sandbox.delete`. An unknown id is not an error. */
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
   * What happens to sandboxes, to all or to one: first the kept history after a sequence, then as it comes. Goes on
   * after the last event where the connection breaks.
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

/** What a sandbox should be, and by what id. */
export interface CreateOptions extends SandboxSpec, CallSettings {
  readonly sandboxId?: string | undefined;
}

/** Which sandboxes are listed. */
export interface ListOptions extends CallSettings {
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly showTerminated?: boolean | undefined;
}

/** Which events come. */
export interface EventsOptions extends CallSettings {
  readonly afterSequence?: number | undefined;
  readonly sandboxId?: string | undefined;
}
