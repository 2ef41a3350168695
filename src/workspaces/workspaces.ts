import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import { KeyedLock } from "../base/keyed-lock.ts";
import type { WorkspaceMounts } from "./mounts.ts";
import type { WorkspaceSandboxes } from "./sandboxes.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import {
  contentReplaced,
  type WorkspaceName,
  type WorkspaceView,
  workspaceBroken,
  workspaceKey,
  workspaceNotFound,
} from "./workspace.ts";

/** How long Berth answers a retry of a deletion. */
const KEEP_DELETIONS_MS = 24 * 3600 * 1000;

/** What {@link Workspaces} is built of. */
export interface WorkspacesParts {
  readonly store: WorkspaceStore;
  readonly storage: WorkspaceStorage;
  readonly mounts: WorkspaceMounts;
  readonly users: WorkspaceSandboxes;
  readonly clock: Clock;
}

/** A finished deletion. */
export interface FinishedDeletion {
  readonly clearedRefs: number;
}

/**
 * Finds, makes and deletes workspaces.
 *
 * {@link locked} is held across everything that changes one workspace, its
 * directory and its sandbox, the engine's calls included. It is not reentrant,
 * never nests, and no two workspaces wait for each other.
 *
 * A fork holds the lock of the workspace that it makes, not that of its source.
 *
 * A deletion goes in steps, each of which can be repeated: the store marks the
 * workspace, so no sandbox mounts it any more; its sandboxes are removed; its
 * directory; and last its record.
 */
export class Workspaces {
  readonly #parts: WorkspacesParts;
  readonly #locks = new KeyedLock();
  /** By key: why a deletion failed. */
  readonly #failedDeletions = new Map<string, string>();

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
    const problem = await this.#parts.storage.problemOf(name);
    if (problem !== undefined) throw workspaceBroken(name, problem);
    return record;
  }

  /**
   * Whether it is the same still after it was read: what is deleted or replaced meanwhile looks like files that vanish.
   * @param done what was done with it, as "copied"
   * @throws `WORKSPACE_NOT_FOUND`; `WORKSPACE_IN_USE` where its content was replaced.
   */
  assertSame(before: WorkspaceRecord, done: string): void {
    const now = this.#parts.store.find(before);
    if (now?.state !== "ACTIVE" || now.number !== before.number) throw workspaceNotFound(before);
    if (now.tree !== before.tree) throw contentReplaced(before, done);
  }

  /** Makes it where there is none. Under its lock. @throws `WORKSPACE_BROKEN`, `NO_SPACE`. */
  async make(name: WorkspaceName): Promise<{ readonly record: WorkspaceRecord; readonly created: boolean }> {
    const { store, storage, mounts, clock } = this.#parts;
    let known = store.find(name);
    if (known?.state === "ACTIVE") return { record: await this.findWhole(name), created: false };
    if (known?.state === "DELETING" || known?.state === "FORKING") {
      await this.finishDeletion(known, 0);
      known = undefined;
    }
    const record = known ?? store.insert(name, "CREATING", clock.wallMs());
    try {
      if (storage.sharing) await mounts.makeShared(name.owner);
      // Recorded before it is made: a directory without a record is not Berth's.
      await storage.make(record, { mayExist: known !== undefined });
    } catch (error) {
      if (known === undefined) store.remove(name);
      throw error;
    }
    store.activate(name);
    return { record: { ...record, state: "ACTIVE" }, created: true };
  }

  /** What clients see of it now. */
  view(name: WorkspaceName): WorkspaceView {
    const { store, storage, users } = this.#parts;
    const record = this.find(name);
    return {
      owner: record.owner,
      workspaceId: record.workspaceId,
      path: storage.pathOf(record),
      traceRefs: store.refs(record),
      sandboxId: users.current(record)?.sandboxId ?? "",
      sizeBytes: record.sizeBytes,
      createTimeMs: record.createTimeMs,
      updateTimeMs: record.updateTimeMs,
      hasShared: storage.sharing,
      ...storage.quotaOf(record),
    };
  }

  /** Deletes it, or continues a deletion; returns when nothing is left. Under its lock. */
  async delete(
    record: WorkspaceRecord,
    options: { readonly requestId: string; readonly graceMs: number | undefined },
  ): Promise<FinishedDeletion> {
    const { store, clock } = this.#parts;
    const now = clock.wallMs();
    store.forgetDeletions(now - KEEP_DELETIONS_MS);
    const { clearedRefs } = store.beginDeletion(record, options.requestId, now);
    await this.finishDeletion(record, options.graceMs);
    store.answerDeletion(record);
    return { clearedRefs };
  }

  /** Continues a deletion that has started, or removes what is left of a fork. Under its lock. */
  async finishDeletion(record: WorkspaceRecord, graceMs: number | undefined): Promise<void> {
    const { store, storage, users } = this.#parts;
    const key = workspaceKey(record);
    try {
      await users.removeUsers(record, graceMs);
      await storage.discard(record);
    } catch (error) {
      const problem = error instanceof BerthError ? error.message : "see the server's log.";
      this.#failedDeletions.set(key, `its deletion failed: ${problem} Clean it up again.`);
      throw error;
    }
    store.remove(record);
    this.#failedDeletions.delete(key);
  }

  /** Why its deletion failed; undefined: it did not, or has not yet. */
  deletionProblemOf(name: WorkspaceName): string | undefined {
    return this.#failedDeletions.get(workspaceKey(name));
  }

  /** A finished deletion that no caller has an answer to yet, or that this request started. Counts as answered now. */
  takeFinishedDeletion(name: WorkspaceName, requestId: string): FinishedDeletion | undefined {
    const { store, clock } = this.#parts;
    const deletion = store.deletion(name);
    if (deletion === undefined || deletion.timeMs < clock.wallMs() - KEEP_DELETIONS_MS) return undefined;
    const isRetry = requestId !== "" && deletion.requestId === requestId;
    if (deletion.answered && !isRetry) return undefined;
    store.answerDeletion(name);
    return { clearedRefs: deletion.clearedRefs };
  }
}
