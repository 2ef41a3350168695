import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { WorkspaceFiles } from "./files-port.ts";
import type { WorkspaceSandboxes } from "./sandboxes.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import { type WorkspaceName, workspaceKey } from "./workspace.ts";

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
