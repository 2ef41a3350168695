import type { Clock } from "../base/clock.ts";
import { BerthError, hasReason } from "../base/errors.ts";
import { KeyedLock } from "../base/keyed-lock.ts";
import type { ServiceTime } from "../state/service-time.ts";
import type { WorkspaceMounts } from "./mounts.ts";
import type { WorkspaceQuota } from "./quota.ts";
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

interface WorkspacesParts {
  readonly store: WorkspaceStore;
  readonly storage: WorkspaceStorage;
  readonly mounts: WorkspaceMounts;
  readonly users: WorkspaceSandboxes;
  readonly quota: Pick<WorkspaceQuota, "forget">;
  readonly clock: Clock;
  readonly time: Pick<ServiceTime, "nowMs">;
}

/**
 * Finds, creates and deletes workspaces.
 *
 * {@link locked} is held during everything that changes a workspace, its directory or its sandbox, including the
 * engine's calls. The lock is not reentrant and never nests, and no workspace waits for another.
 *
 * A fork holds the lock of the new workspace, not that of its source.
 *
 * A deletion has steps that can be repeated: the store marks the workspace, so that no sandbox mounts it any more; then
 * its sandboxes, its directory and finally its record are removed.
 */
export class Workspaces {
  readonly #parts: WorkspacesParts;
  readonly #locks = new KeyedLock();
  /** Numbers of the new workspaces that running imports fill. */
  readonly #importing = new Set<number>();
  /** Why the last attempt of a deletion failed, by key. */
  readonly #failedDeletions = new Map<string, string>();

  constructor(parts: WorkspacesParts) {
    this.#parts = parts;
  }

  /** Runs `work` with exclusive access to the workspace. */
  locked<T>(name: WorkspaceName, work: () => Promise<T>): Promise<T> {
    return this.#locks.run(workspaceKey(name), work);
  }

  /** @throws `WORKSPACE_NOT_FOUND`, also if it is being deleted. */
  find(name: WorkspaceName): WorkspaceRecord {
    const record = this.#parts.store.find(name);
    if (record?.state !== "ACTIVE") throw workspaceNotFound(name);
    return record;
  }

  /** Finds a workspace whose directory is as it should be. @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_BROKEN`. */
  async findWhole(name: WorkspaceName): Promise<WorkspaceRecord> {
    const record = this.find(name);
    const problem = await this.#parts.storage.problemOf(name);
    if (problem !== undefined) throw workspaceBroken(name, problem);
    return record;
  }

  /**
   * Checks after a read that the workspace is still the same. If it was deleted or replaced meanwhile, its files seemed
   * to vanish.
   * @param done what was done with it, such as "copied".
   * @throws `WORKSPACE_NOT_FOUND`; `WORKSPACE_IN_USE` if its content was replaced.
   */
  assertSame(before: WorkspaceRecord, done: string): void {
    const now = this.#parts.store.find(before);
    if (now?.state !== "ACTIVE" || now.number !== before.number) throw workspaceNotFound(before);
    if (now.tree !== before.tree) throw contentReplaced(before, done);
  }

  /** Creates it unless it exists. Call with its lock held. @throws `WORKSPACE_BROKEN`, `NO_SPACE`. */
  async make(name: WorkspaceName): Promise<{ readonly record: WorkspaceRecord; readonly created: boolean }> {
    const record = await this.#begin(name);
    if (record.state === "ACTIVE") return { record, created: false };
    this.activate(record);
    return { record: { ...record, state: "ACTIVE" }, created: true };
  }

  /** Records that a new workspace is complete. Call with its lock held. */
  activate(record: WorkspaceRecord): void {
    this.#parts.store.activate(record);
    this.#importing.delete(record.number);
  }

  /**
   * Whether a workspace has to be removed before another one gets its name: it is being deleted, or a fork or an import
   * that failed or was interrupted has left it. Call with its lock held, which a fork holds until its end.
   */
  isLeft({ number, state }: WorkspaceRecord): boolean {
    return (
      state === "DELETING" || state === "FORKING" || (state === "IMPORTING" && !this.#importing.has(number))
    );
  }

  /**
   * Like {@link make}, but a new workspace is in IMPORTING, so that it is not found, until somebody activates it. Without
   * that, {@link giveUp} removes it. What that cannot remove {@link isLeft}.
   */
  async makeForImport(name: WorkspaceName): Promise<WorkspaceRecord> {
    const record = await this.#begin(name);
    if (record.state === "ACTIVE") return record;
    if (record.state === "IMPORTING") {
      // Another import is creating it. It stays, whether that import succeeds or not.
      this.activate(record);
      return { ...record, state: "ACTIVE" };
    }
    try {
      this.#parts.store.setImporting(name);
    } catch (error) {
      await this.finishDeletion(record, 0);
      throw error;
    }
    this.#importing.add(record.number);
    return { ...record, state: "IMPORTING" };
  }

  /** Creates its record, in CREATING, and its directory, unless it exists. */
  async #begin(name: WorkspaceName): Promise<WorkspaceRecord> {
    const { store, storage, mounts, clock } = this.#parts;
    let known = store.find(name);
    if (known?.state === "ACTIVE") return this.findWhole(name);
    if (known !== undefined && this.isLeft(known)) {
      await this.finishDeletion(known, 0);
      known = undefined;
    }
    if (known === undefined) await storage.assertFree(name);
    const record = known ?? store.insert(name, "CREATING", clock.wallMs());
    try {
      if (storage.sharing) await mounts.makeShared(name.owner);
      // Record it first: a directory without a record is treated as not Berth's.
      await storage.make(record);
    } catch (error) {
      if (known === undefined) store.remove(name);
      throw error;
    }
    return record;
  }

  /** Removes a workspace that {@link makeForImport} created, if nobody has activated it. Call with its lock held. */
  async giveUp({ number, ...name }: WorkspaceRecord): Promise<void> {
    this.#importing.delete(number);
    const now = this.#parts.store.find(name);
    if (now?.number === number && now.state === "IMPORTING") await this.finishDeletion(now, 0);
  }

  /** What clients see of it now. */
  view(name: WorkspaceName): WorkspaceView {
    const { storage, users } = this.#parts;
    const record = this.find(name);
    return {
      owner: record.owner,
      workspaceId: record.workspaceId,
      path: storage.pathOf(record),
      sandboxId: users.current(record)?.sandboxId ?? "",
      sizeBytes: record.sizeBytes,
      createTimeMs: record.createTimeMs,
      updateTimeMs: record.updateTimeMs,
      hasShared: storage.sharing,
      ...storage.quotaOf(record),
    };
  }

  /**
   * Deletes it, or continues a deletion. Call with its lock held.
   * @returns how many references it had, when nothing is left.
   */
  async delete(
    record: WorkspaceRecord,
    options: { readonly requestId: string; readonly graceMs: number | undefined },
  ): Promise<number> {
    const { store, storage, users } = this.#parts;
    let clearedRefs: number;
    try {
      clearedRefs = this.#beginDeletion(record, options.requestId);
    } catch (error) {
      if (!hasReason(error, "NO_SPACE")) throw error;
      // The workspace may be what fills the disk. If this is interrupted, the next cleanup continues it.
      await users.removeUsers(record, options.graceMs);
      await storage.discard(record);
      clearedRefs = this.#beginDeletionOfEmpty(record, options.requestId);
    }
    await this.finishDeletion(record, options.graceMs);
    store.answerDeletion(record);
    return clearedRefs;
  }

  #beginDeletionOfEmpty(record: WorkspaceRecord, requestId: string): number {
    try {
      return this.#beginDeletion(record, requestId);
    } catch (cause) {
      if (!hasReason(cause, "NO_SPACE")) throw cause;
      throw new BerthError(
        "NO_SPACE",
        "The workspace's files are deleted, but the disk of the server's data directory is too full to record that. Ask the operator to free space there, and clean the workspace up again.",
        { cause },
      );
    }
  }

  /** Records that a deletion has started. Returns how many references it clears. */
  #beginDeletion(record: WorkspaceRecord, requestId: string): number {
    const { store, time } = this.#parts;
    const now = Math.floor(time.nowMs());
    store.forgetDeletions(now - KEEP_DELETIONS_MS);
    return store.beginDeletion(record, requestId, now).clearedRefs;
  }

  /** Continues a deletion that has started, or removes an incomplete fork. Call with its lock held. */
  async finishDeletion(record: WorkspaceRecord, graceMs: number | undefined): Promise<void> {
    const { store, storage, users, quota } = this.#parts;
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
    quota.forget(record);
    this.#failedDeletions.delete(key);
  }

  /** Why its deletion failed. Undefined: it did not fail, or not yet. */
  deletionProblemOf(name: WorkspaceName): string | undefined {
    return this.#failedDeletions.get(workspaceKey(name));
  }

  /**
   * How many references a workspace had whose deletion is complete, if this request started it, or if no caller has
   * received that answer yet and there is no such workspace again. Marks it as answered.
   */
  takeFinishedDeletion(name: WorkspaceName, requestId: string): number | undefined {
    const { store, time } = this.#parts;
    const state = store.find(name)?.state;
    const deletion = store.deletion(name);
    if (state === "DELETING" || deletion === undefined) return undefined;
    if (deletion.timeMs < time.nowMs() - KEEP_DELETIONS_MS) return undefined;
    const isRetry = requestId !== "" && deletion.requestId === requestId;
    if (!isRetry && (deletion.answered || state !== undefined)) return undefined;
    store.answerDeletion(name);
    return deletion.clearedRefs;
  }
}
