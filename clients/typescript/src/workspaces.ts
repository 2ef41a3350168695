import { allPages, type CallSettings, type Connection, newRequestId } from "./connection.ts";
import { duration, specMessage, workspaceInfo } from "./convert.ts";
import { workspaceChange } from "./convert-file.ts";
import { BerthError } from "./errors.ts";
import { Sandbox } from "./sandbox.ts";
import { readableOf } from "./streams.ts";
import type {
  SandboxSpec,
  Source,
  Unpacked,
  WorkspaceChange,
  WorkspaceInfo,
  WorkspaceList,
} from "./types.ts";

const PAGE = 1000;

/** A workspace and its sandbox. */
export interface WorkspaceSandbox {
  readonly workspace: WorkspaceInfo;
  /** Undefined if the engine does not answer; `unavailableReason` says why. */
  readonly sandbox: Sandbox | undefined;
  readonly unavailableReason: string;
  /** Whether the sandbox already existed. */
  readonly reused: boolean;
}

/**
 * The workspaces of a service: directories that outlive the sandboxes they are mounted in. `berth.workspaces`. You
 * choose a workspace's id: any text of 1 to 256 bytes.
 *
 * All methods may throw: INVALID_ARGUMENT for a bad id, WORKSPACE_NOT_FOUND, WORKSPACE_BROKEN.
 */
export class Workspaces {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Creates a workspace and its directory; an existing one is returned as it is. */
  async create(workspaceId: string, { signal }: CallSettings = {}): Promise<WorkspaceInfo> {
    const request = { requestId: newRequestId(), workspaceId };
    const call = (options: object) => this.#connection.workspaces.createWorkspace(request, options);
    return workspaceInfo((await this.#connection.again(call, signal)).workspace);
  }

  /**
   * Creates the workspace `workspaceId` with the current content of `sourceId`; sandboxes may use the source meanwhile.
   * References are not copied. Throws WORKSPACE_EXISTS, NO_SPACE, TENANT_QUOTA.
   */
  async fork(sourceId: string, workspaceId: string, { signal }: CallSettings = {}): Promise<WorkspaceInfo> {
    const request = { requestId: newRequestId(), sourceWorkspaceId: sourceId, workspaceId };
    const call = (options: object) => this.#connection.workspaces.forkWorkspace(request, options);
    return workspaceInfo((await this.#connection.again(call, signal)).workspace);
  }

  /**
   * How a workspace differs from another one, `baseId`, such as the source of its fork, sorted by path. Compares every
   * byte of the files, but not times, and reads both in full. The changes are complete only if the loop ends without an
   * error. Throws WORKSPACE_IN_USE if one is replaced meanwhile, UNSUPPORTED.
   */
  async *diff(
    baseId: string,
    workspaceId: string,
    { signal }: CallSettings = {},
  ): AsyncGenerator<WorkspaceChange> {
    const request = { baseWorkspaceId: baseId, workspaceId };
    const call = (options: object) => this.#connection.workspaces.diffWorkspace(request, options);
    for await (const { item } of this.#connection.readStream(call, signal)) {
      if (item.case === "changes") for (const change of item.value.changes) yield workspaceChange(change);
    }
  }

  /** The data of a workspace; `measureSize` reads its whole tree. */
  async get(
    workspaceId: string,
    { measureSize = false, signal }: CallSettings & { readonly measureSize?: boolean } = {},
  ): Promise<WorkspaceInfo> {
    const call = (options: object) =>
      this.#connection.workspaces.getWorkspace({ workspaceId, measureSize }, options);
    return workspaceInfo((await this.#connection.again(call, signal)).workspace);
  }

  /** All workspaces, and separately those that are broken. */
  async list({ signal }: CallSettings = {}): Promise<WorkspaceList> {
    const broken: WorkspaceList["broken"][number][] = [];
    const workspaces = await allPages(async (pageToken) => {
      const request = { pageSize: PAGE, pageToken };
      const call = (options: object) => this.#connection.workspaces.listWorkspaces(request, options);
      const page = await this.#connection.again(call, signal);
      broken.push(...page.broken.map(({ workspaceId, path, message }) => ({ workspaceId, path, message })));
      return { items: page.workspaces.map(workspaceInfo), nextPageToken: page.nextPageToken };
    });
    return { workspaces, broken };
  }

  /**
   * Makes sure that a workspace has a running sandbox, in which it is the working directory. Creates the workspace if
   * missing. An existing sandbox stays as it is; a new one is created from `spec`.
   *
   * Throws as `sandboxes.create`; NO_SPACE if the workspace exceeds its quota.
   */
  async ensureSandbox(
    workspaceId: string,
    { signal, ...spec }: SandboxSpec & CallSettings = {},
  ): Promise<WorkspaceSandbox> {
    const request = { requestId: newRequestId(), workspaceId, spec: specMessage(spec) };
    const call = (options: object) => this.#connection.workspaces.ensureWorkspaceSandbox(request, options);
    const { workspace, sandbox, sandboxUnavailableReason, reused } = await this.#connection.again(
      call,
      signal,
    );
    return {
      workspace: workspaceInfo(workspace),
      sandbox: sandbox && new Sandbox(this.#connection, sandbox),
      unavailableReason: sandboxUnavailableReason,
      reused,
    };
  }

  /** Deletes a workspace's sandbox; the directory and the references stay. Idempotent. */
  async stopSandbox(
    workspaceId: string,
    { graceMs, signal }: CallSettings & { readonly graceMs?: number } = {},
  ): Promise<WorkspaceInfo> {
    const request = { requestId: newRequestId(), workspaceId, grace: duration(graceMs) };
    const call = (options: object) => this.#connection.workspaces.stopWorkspaceSandbox(request, options);
    return workspaceInfo((await this.#connection.again(call, signal)).workspace);
  }

  /** Records that a trace uses a workspace, and creates the workspace if missing. Removes the trace from any other. Idempotent. */
  async addTraceRef(
    workspaceId: string,
    traceId: string,
    { signal }: CallSettings = {},
  ): Promise<WorkspaceInfo> {
    const request = { requestId: newRequestId(), workspaceId, traceId };
    const call = (options: object) => this.#connection.workspaces.addTraceRef(request, options);
    return workspaceInfo((await this.#connection.again(call, signal)).workspace);
  }

  /** Records that a trace no longer uses a workspace. Idempotent. */
  async removeTraceRef(
    workspaceId: string,
    traceId: string,
    { signal }: CallSettings = {},
  ): Promise<WorkspaceInfo> {
    const request = { requestId: newRequestId(), workspaceId, traceId };
    const call = (options: object) => this.#connection.workspaces.removeTraceRef(request, options);
    return workspaceInfo((await this.#connection.again(call, signal)).workspace);
  }

  /** The workspace that a trace uses, if any. */
  async lookupTrace(traceId: string, { signal }: CallSettings = {}): Promise<WorkspaceInfo | undefined> {
    try {
      const call = (options: object) => this.#connection.workspaces.lookupTrace({ traceId }, options);
      return workspaceInfo((await this.#connection.again(call, signal)).workspace);
    } catch (error) {
      if (BerthError.is(error, "TRACE_NOT_FOUND")) return undefined;
      throw error;
    }
  }

  /**
   * Ends the use of a workspace: deletes every sandbox that mounts it, and clears its references. Throws
   * WORKSPACE_IN_USE while traces refer to it (`metadata.ref_count`), unless `force`, which also deletes the directory
   * and the workspace and returns undefined.
   */
  async cleanup(
    workspaceId: string,
    {
      force = false,
      graceMs,
      signal,
    }: CallSettings & { readonly force?: boolean; readonly graceMs?: number } = {},
  ): Promise<WorkspaceInfo | undefined> {
    const request = { requestId: newRequestId(), workspaceId, force, grace: duration(graceMs) };
    const call = (options: object) => this.#connection.workspaces.cleanupWorkspace(request, options);
    const { workspace } = await this.#connection.again(call, signal);
    return workspace && workspaceInfo(workspace);
  }

  /** A workspace as an uncompressed tar. It is complete only when the stream has ended. */
  exportArchive(workspaceId: string, { signal }: CallSettings = {}): ReadableStream<Uint8Array> {
    const call = (options: object) => this.#connection.workspaces.exportWorkspace({ workspaceId }, options);
    return readableOf((either) => this.#connection.chunks(call, either), signal);
  }

  /**
   * Unpacks an uncompressed tar into a workspace, and creates the workspace if missing. `replace` replaces the whole
   * content in one step. Throws ARCHIVE_REJECTED, WORKSPACE_IN_USE; not in browsers.
   */
  async importArchive(
    workspaceId: string,
    source: Source,
    { replace = false, signal }: CallSettings & { readonly replace?: boolean } = {},
  ): Promise<Unpacked> {
    const { entryCount, sizeBytes } = await this.#connection.upload(
      { workspaceId, replace },
      source,
      (messages, options) => this.#connection.workspaces.importWorkspace(messages, options),
      signal,
    );
    return { entryCount: Number(entryCount), size: Number(sizeBytes) };
  }
}
