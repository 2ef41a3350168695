import type { Clock } from "../base/clock.ts";
import { KeyedLock } from "../base/keyed-lock.ts";
import type { WorkspaceDeleter } from "./deleter.ts";
import type { WorkspaceFiles } from "./files-port.ts";
import type { WorkspaceSandboxes } from "./sandboxes.ts";
import type { SharedDirectories } from "./shared-directories.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import {
  type WorkspaceName,
  type WorkspaceView,
  workspaceBroken,
  workspaceKey,
  workspaceNotFound,
} from "./workspace.ts";

/** What {@link Workspaces} is built of. */
export interface WorkspacesParts {
  readonly store: WorkspaceStore;
  readonly files: WorkspaceFiles;
  readonly shared: SharedDirectories;
  readonly sandboxes: WorkspaceSandboxes;
  readonly deleter: WorkspaceDeleter;
  readonly clock: Clock;
}

/**
 * Finds and makes workspaces.
 *
 * {@link locked} is held across everything that changes one workspace, its
 * directory and its sandbox, the engine's calls included. It is not reentrant,
 * never nests, and no two workspaces wait for each other.
 */
export class Workspaces {
  readonly #parts: WorkspacesParts;
  readonly #locks = new KeyedLock();

  constructor(parts: WorkspacesParts) {
    this.#parts = parts;
  }

  /** Runs `work` alone for this workspace. */
  locked<T>(name: WorkspaceName, work: () => Promise<T>): Promise<T> {
    return this.#locks.run(workspaceKey(name), work);
  }

  /** @throws `WORKSPACE_NOT_FOUND`, also for one that is being deleted. */
  find(name: WorkspaceName): WorkspaceRecord {
    const record = this.#parts.store.find(name);
    if (record?.state !== "ACTIVE") throw workspaceNotFound(name);
    return record;
  }

  /** One whose directory is as it should be. @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_BROKEN`. */
  async findWhole(name: WorkspaceName): Promise<WorkspaceRecord> {
    const record = this.find(name);
    const problem = await this.#parts.files.problemOf(name);
    if (problem !== undefined) throw workspaceBroken(name, problem);
    return record;
  }

  /** Makes it where there is none. Under its lock. @throws `WORKSPACE_BROKEN`, `NO_SPACE`. */
  async make(name: WorkspaceName): Promise<{ readonly record: WorkspaceRecord; readonly created: boolean }> {
    const { store, files, shared, clock, deleter } = this.#parts;
    let known = store.find(name);
    if (known?.state === "ACTIVE") return { record: await this.findWhole(name), created: false };
    if (known?.state === "DELETING") {
      await deleter.finish(known, 0);
      known = undefined;
    }
    const record = known ?? store.insert(name, "CREATING", clock.wallMs());
    try {
      await shared.pathOf(name.owner);
      // Known before it is there: a directory that is there and not known is somebody else's.
      await files.make(record, { mayExist: known !== undefined });
    } catch (error) {
      if (known === undefined) store.remove(name);
      throw error;
    }
    store.activate(name);
    return { record: { ...record, state: "ACTIVE" }, created: true };
  }

  /** What clients see of it now. */
  view(name: WorkspaceName): WorkspaceView {
    const { store, files, sandboxes } = this.#parts;
    const record = this.find(name);
    return {
      owner: record.owner,
      workspaceId: record.workspaceId,
      path: files.pathOf(record),
      traceRefs: store.refs(record),
      sandboxId: sandboxes.current(record)?.sandboxId ?? "",
      sizeBytes: record.sizeBytes,
      createTimeMs: record.createTimeMs,
      updateTimeMs: record.updateTimeMs,
      ...files.quotaOf(record),
    };
  }
}
