import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { KeyedLock } from "../base/keyed-lock.ts";
import type { Logger } from "../base/logger.ts";
import type { WorkspaceFiles } from "./files-port.ts";
import type { SharedDirectories } from "./mounts.ts";
import type { WorkspaceSandboxes } from "./sandboxes.ts";
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

/** How long a retry of a deletion is answered. */
const KEEP_DELETIONS_MS = 24 * 3600 * 1000;

/** A deletion whose end nobody was told of yet, or that the same request asks for again. */
export interface FinishedDeletion {
  readonly clearedRefs: number;
}

/**
 * Deletes workspaces, in steps of which each can be done again: the store says
 * that it is to go, so no sandbox mounts it any more; its sandboxes are removed;
 * its directory; and last what the store knows of it.
 */
export class WorkspaceDeleter {
  readonly #store: WorkspaceStore;
  readonly #files: WorkspaceFiles;
  readonly #sandboxes: WorkspaceSandboxes;
  readonly #clock: Clock;
  readonly #logger: Logger;
  /** By key: what kept a deletion from being finished. */
  readonly #unfinished = new Map<string, string>();

  constructor(parts: {
    readonly store: WorkspaceStore;
    readonly files: WorkspaceFiles;
    readonly sandboxes: WorkspaceSandboxes;
    readonly clock: Clock;
    readonly logger: Logger;
  }) {
    this.#store = parts.store;
    this.#files = parts.files;
    this.#sandboxes = parts.sandboxes;
    this.#clock = parts.clock;
    this.#logger = parts.logger;
  }

  /** Begins a deletion, or goes on with one; returns when nothing is left. Under the workspace's lock. */
  async remove(
    record: WorkspaceRecord,
    options: { readonly requestId: string; readonly graceMs: number | undefined },
  ): Promise<FinishedDeletion> {
    const now = this.#clock.wallMs();
    this.#store.forgetDeletions(now - KEEP_DELETIONS_MS);
    const { clearedRefs } = this.#store.beginDeletion(record, options.requestId, now);
    await this.finish(record, options.graceMs);
    this.#store.answerDeletion(record);
    return { clearedRefs };
  }

  /** Goes on with a deletion that was begun. Under the workspace's lock. */
  async finish(record: WorkspaceRecord, graceMs: number | undefined): Promise<void> {
    const key = workspaceKey(record);
    try {
      await this.#sandboxes.removeUsers(record, graceMs);
      await this.#files.discard(record);
    } catch (error) {
      const problem = error instanceof BerthError ? error.message : "see the server's log.";
      this.#unfinished.set(key, `it is to be deleted, and that failed: ${problem} Then clean it up again.`);
      throw error;
    }
    this.#store.remove(record);
    this.#unfinished.delete(key);
  }

  /** What keeps a deletion from being finished; undefined: nothing, or nothing is known yet. */
  problemOf(name: WorkspaceName): string | undefined {
    return this.#unfinished.get(workspaceKey(name));
  }

  /** The end of a deletion that nobody was told of, or that this request began; it counts as told now. */
  finished(name: WorkspaceName, requestId: string): FinishedDeletion | undefined {
    const deletion = this.#store.deletion(name);
    if (deletion === undefined || deletion.timeMs < this.#clock.wallMs() - KEEP_DELETIONS_MS)
      return undefined;
    const isRetry = requestId !== "" && deletion.requestId === requestId;
    if (deletion.answered && !isRetry) return undefined;
    this.#store.answerDeletion(name);
    return { clearedRefs: deletion.clearedRefs };
  }

  /** Says that a deletion could not be finished yet. */
  tell(record: WorkspaceRecord, error: unknown): void {
    const { workspaceId } = record;
    this.#logger.warn(
      { workspaceId, err: error },
      "a workspace could not be deleted yet; the next call that names it tries again",
    );
  }
}
