import type { Clock } from "../base/clock.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { failpoint } from "../base/failpoints.ts";
import type { Logger } from "../base/logger.ts";
import { NO_PROGRESS, type RequestProgress } from "../state/request-log.ts";
import type { WorkspaceMounts } from "./mounts.ts";
import type { WorkspaceQuota } from "./quota.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import type { Transfers } from "./transfers.ts";
import type { WorkspaceName, WorkspaceView } from "./workspace.ts";
import type { Workspaces } from "./workspaces.ts";

interface WorkspaceForkParts {
  readonly workspaces: Workspaces;
  readonly store: WorkspaceStore;
  readonly storage: WorkspaceStorage;
  readonly mounts: WorkspaceMounts;
  readonly quota: WorkspaceQuota;
  readonly transfers: Transfers;
  readonly clock: Clock;
  readonly logger: Logger;
}

interface ForkOptions {
  readonly signal: AbortSignal;
  readonly progress?: RequestProgress;
}

/**
 * Creates workspaces with the content of others. A new one is in FORKING until it is complete. Incomplete ones, after a
 * failure or the end of the service, are removed: at once, at the next start, or by the next call that would create it.
 */
export class WorkspaceFork {
  readonly #parts: WorkspaceForkParts;

  constructor(parts: WorkspaceForkParts) {
    this.#parts = parts;
  }

  /**
   * Creates the workspace `target` with the content of `source`. Sandboxes may use the source meanwhile.
   * @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_EXISTS`, `WORKSPACE_BROKEN`, `WORKSPACE_IN_USE`, `NO_SPACE`,
   *   `TENANT_QUOTA`, `UNSUPPORTED`.
   */
  fork(source: WorkspaceName, target: WorkspaceName, options: ForkOptions): Promise<WorkspaceView> {
    const { workspaces, transfers } = this.#parts;
    const work = () => workspaces.locked(target, () => this.#fork(source, target, options));
    return transfers.copy(source.owner, work, options.signal);
  }

  async #fork(
    source: WorkspaceName,
    target: WorkspaceName,
    { signal, progress = NO_PROGRESS }: ForkOptions,
  ): Promise<WorkspaceView> {
    const { workspaces, store, storage, clock } = this.#parts;
    throwIfAborted(signal);
    const known = store.find(target);
    if (known?.state === "ACTIVE" && progress.subject === String(known.number))
      return workspaces.view(target);
    const from = workspaces.find(source);
    if (known !== undefined && !workspaces.isLeft(known)) throw exists(target);
    if (known !== undefined) await workspaces.finishDeletion(known, 0);
    await storage.assertFree(target);
    const fork = store.insertFork(target, from.sizeBytes ?? 0, clock.wallMs(), ({ number }) =>
      progress.begin(String(number)),
    );
    failpoint("fork.intended");
    await this.#make(fork, from, signal);
    try {
      await this.#fill(from, fork, signal);
    } catch (error) {
      await this.#discard(fork);
      throw signal.aborted ? signal.reason : error;
    }
    return workspaces.view(target);
  }

  async #make(fork: WorkspaceRecord, forkOf: WorkspaceRecord, signal: AbortSignal): Promise<void> {
    const { workspaces, store, storage, mounts } = this.#parts;
    try {
      if (storage.sharing) await mounts.makeShared(fork.owner);
      await storage.make(fork, { forkOf, signal });
    } catch (error) {
      store.remove(fork);
      if (signal.aborted) throw signal.reason;
      workspaces.assertSame(forkOf, "copied");
      throw error;
    }
  }

  async #fill(from: WorkspaceRecord, fork: WorkspaceRecord, signal: AbortSignal): Promise<void> {
    const { workspaces, store, storage, quota } = this.#parts;
    // The new volume may be a clone of the source: if the source is replaced after this check, the fork fails.
    await workspaces.findWhole(from);
    const maxBytes = await quota.roomForFork(fork, await quota.measure(from, signal), signal);
    const sizeBytes = await storage.copy(from, fork, { maxBytes, signal }).catch((error: unknown) => {
      workspaces.assertSame(from, "copied");
      throw error;
    });
    workspaces.assertSame(from, "copied");
    failpoint("fork.copied");
    await quota.roomForFork(fork, sizeBytes, signal);
    throwIfAborted(signal);
    store.activate(fork);
    failpoint("fork.activated");
  }

  /** A fork that cannot be removed stays in FORKING. */
  async #discard(fork: WorkspaceRecord): Promise<void> {
    const { workspaces, logger } = this.#parts;
    await workspaces.finishDeletion(fork, 0).catch((error: unknown) => {
      const { workspaceId } = fork;
      logger.warn({ workspaceId, err: error }, "what a fork left could not be removed");
    });
  }
}

function exists({ workspaceId }: WorkspaceName): BerthError {
  return new BerthError(
    "WORKSPACE_EXISTS",
    `There is a workspace ${JSON.stringify(workspaceId)} already. Choose another id, or clean that one up with force.`,
    { metadata: { workspace_id: workspaceId } },
  );
}
