import { forEachConcurrently, within } from "../base/async.ts";
import type { Clock } from "../base/clock.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import type { MemoryBudget } from "../base/memory-budget.ts";
import type { TemporaryNames } from "../files/temporary-names.ts";
import { NO_PROGRESS, type RequestProgress } from "../state/request-log.ts";
import type { WorkspaceMounts } from "./mounts.ts";
import type { WorkspaceQuota } from "./quota.ts";
import type { WorkspaceSandboxes } from "./sandboxes.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import type { WorkspaceSweep } from "./sweep.ts";
import type { Transfers } from "./transfers.ts";
import {
  type BrokenWorkspace,
  type WorkspaceName,
  type WorkspaceView,
  workspaceNotFound,
} from "./workspace.ts";
import type { Workspaces } from "./workspaces.ts";

interface WorkspaceManagerParts {
  readonly workspaces: Workspaces;
  readonly store: WorkspaceStore;
  readonly storage: WorkspaceStorage;
  readonly mounts: WorkspaceMounts;
  /** For temporary files in workspaces. */
  readonly names: TemporaryNames;
  readonly quota: WorkspaceQuota;
  readonly sweep: WorkspaceSweep;
  readonly users: WorkspaceSandboxes;
  readonly transfers: Transfers;
  /** Limits what imports gather. */
  readonly memory: MemoryBudget;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** A page of workspaces. */
interface WorkspacePage {
  readonly workspaces: readonly WorkspaceView[];
  readonly broken: readonly BrokenWorkspace[];
  /** Id of the last workspace on the page. Undefined if there are no more. */
  readonly next: string | undefined;
}

/** The result of a cleanup. */
interface CleanedUp {
  /** Undefined: it was deleted. */
  readonly workspace: WorkspaceView | undefined;
  readonly clearedRefs: number;
}

/** The result of an import. */
interface Imported {
  readonly workspace: WorkspaceView;
  /** Entries of the archive, including directories and links. */
  readonly entryCount: number;
  /** Total size of its regular files. */
  readonly sizeBytes: number;
}

/** How many traces may use one workspace. */
const MAX_REFS = 10_000;
/** How many foreign entries of a root a list reports. */
const MAX_STRAYS = 1_000;

/** Creates, finds, fills and cleans up workspaces: directories that outlive the sandboxes in which they are mounted. */
export class WorkspaceManager {
  readonly #parts: WorkspaceManagerParts;
  #recovered: Promise<void> = Promise.resolve();
  #stopped = false;

  constructor(parts: WorkspaceManagerParts) {
    this.#parts = parts;
  }

  /**
   * Completes what an earlier run of the service left incomplete, then starts the quota watch and the sweep. Never
   * rejects.
   */
  start(): Promise<void> {
    this.#recovered = this.#recover();
    return this.#recovered;
  }

  /**
   * Stops the quota watch and the sweep, and waits at most `timeoutMs` for what {@link start} is completing. The next
   * start completes the rest.
   */
  async stop({ timeoutMs }: { readonly timeoutMs: number }): Promise<void> {
    const { quota, sweep, clock } = this.#parts;
    this.#stopped = true;
    await within(Promise.all([this.#recovered, quota.stop(), sweep.stop()]), timeoutMs, clock);
  }

  async #recover(): Promise<void> {
    const { store, workspaces, quota, sweep, logger } = this.#parts;
    await forEachConcurrently(this.#unfinished(), (record) =>
      workspaces
        .locked(record, async () => {
          if (this.#stopped) return;
          const known = store.find(record);
          // A call may have finished it, and created another.
          if (known?.number !== record.number) return;
          if (known.state === "CREATING") await workspaces.make(known);
          else if (workspaces.isLeft(known)) await workspaces.finishDeletion(known, 0);
        })
        .catch((error: unknown) => {
          const { workspaceId } = record;
          logger.warn(
            { workspaceId, err: error },
            "a workspace could not be recovered; the next call that names it retries",
          );
        }),
    );
    quota.start();
    sweep.start();
  }

  /** What an earlier run left incomplete. Nothing if the database cannot be read or written now. */
  #unfinished(): WorkspaceRecord[] {
    const { store, storage, mounts, quota, logger } = this.#parts;
    try {
      const unfinished: WorkspaceRecord[] = [];
      for (const record of store.all()) {
        quota.resume(record);
        if (record.state !== "ACTIVE") unfinished.push(record);
      }
      if (storage.sharing) for (const owner of store.owners()) mounts.recordShared(owner);
      return unfinished;
    } catch (error) {
      logger.error({ err: error }, "workspaces cannot be recovered: the next start tries again");
      return [];
    }
  }

  /** Creates a workspace unless it exists. @throws `WORKSPACE_BROKEN`, `NO_SPACE`. */
  create(name: WorkspaceName): Promise<{ readonly workspace: WorkspaceView; readonly created: boolean }> {
    const { workspaces } = this.#parts;
    return workspaces.locked(name, async () => {
      const { created } = await workspaces.make(name);
      return { workspace: workspaces.view(name), created };
    });
  }

  /** @param options.measure whether to measure its size again. @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_BROKEN`. */
  async get(
    name: WorkspaceName,
    options: { readonly measure: boolean; readonly signal: AbortSignal },
  ): Promise<WorkspaceView> {
    const { workspaces, quota } = this.#parts;
    await workspaces.findWhole(name);
    if (options.measure) await quota.measureAgain(name, options.signal);
    return workspaces.view(name);
  }

  /**
   * The ids of the traces that use a workspace, in byte order. None if there is no such workspace: the answer to a retry
   * may name one that is gone.
   */
  references(name: WorkspaceName): string[] {
    return this.#parts.store.refs(name);
  }

  /**
   * Lists an owner's workspaces after the id `after`, in byte order of their ids. Fewer than `limit` if they have many
   * references. Broken ones are separate.
   */
  async list(owner: string, after: string, limit: number): Promise<WorkspacePage> {
    const { store, storage, workspaces } = this.#parts;
    const { records, more } = store.page(owner, after, limit);
    const found: WorkspaceView[] = [];
    const broken: BrokenWorkspace[] = [];
    const problems = await storage.problemsOf(records);
    for (const [index, { workspaceId }] of records.entries()) {
      const name = { owner, workspaceId };
      // Check again: the problem may be gone.
      const problem = problems[index] && (await storage.problemOf(name));
      // It may have been deleted meanwhile, or still be filled by a fork or an import.
      const state = store.find(name)?.state;
      const goes = state !== undefined && state !== "ACTIVE" && state !== "CREATING";
      const message = goes ? workspaces.deletionProblemOf(name) : problem;
      if (state === "ACTIVE" && message === undefined) found.push(workspaces.view(name));
      else if ((state === "ACTIVE" || goes) && message !== undefined)
        broken.push({ workspaceId, path: storage.pathOf(name), message });
    }
    const next = more ? records.at(-1)?.workspaceId : undefined;
    if (next === undefined) {
      const strays = await storage.strays(owner, store.ids(owner), MAX_STRAYS);
      broken.push(...strays.map((stray) => ({ workspaceId: "", ...stray })));
    }
    return { workspaces: found, broken, next };
  }

  /**
   * Deletes the sandboxes of a workspace. With `force` also its references, its directory and the workspace itself.
   * Continues when its caller leaves.
   * @throws `WORKSPACE_NOT_FOUND`; `WORKSPACE_IN_USE` while traces refer to it, unless `force`; `ENGINE_UNAVAILABLE`.
   */
  cleanup(
    name: WorkspaceName,
    options: {
      readonly force: boolean;
      readonly graceMs: number | undefined;
      /** Empty: none. */
      readonly requestId: string;
    },
  ): Promise<CleanedUp> {
    const { workspaces, store, users } = this.#parts;
    return workspaces.locked(name, async () => {
      const record = store.find(name);
      if (options.force) {
        // First, because a retry must not delete what was created since.
        const clearedRefs =
          workspaces.takeFinishedDeletion(name, options.requestId) ??
          (record && (await workspaces.delete(record, options)));
        if (clearedRefs === undefined) throw workspaceNotFound(name);
        return { workspace: undefined, clearedRefs };
      }
      workspaces.find(name);
      const refCount = store.refCount(name);
      if (refCount > 0) throw inUse(name, refCount);
      await users.removeUsers(name, options.graceMs);
      return { workspace: workspaces.view(name), clearedRefs: 0 };
    });
  }

  /**
   * Streams the directory as a tar.
   * @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_BROKEN`, `WORKSPACE_IN_USE`, `TOO_MANY_OPERATIONS`.
   */
  async *export(name: WorkspaceName, signal: AbortSignal): AsyncGenerator<Buffer> {
    const { workspaces, storage, names, transfers } = this.#parts;
    using _ = transfers.stream(name.owner);
    const record = await workspaces.findWhole(name);
    try {
      yield* storage.export(record, (path) => names.hides(path), signal);
    } catch (error) {
      if (!signal.aborted) workspaces.assertSame(record, "exported");
      throw error;
    }
    workspaces.assertSame(record, "exported");
  }

  /**
   * Unpacks a tar into a workspace, and creates the workspace if necessary: a new one appears once the import has
   * succeeded. Holds its lock only to move the files in, not while the tar arrives.
   * @throws `ARCHIVE_REJECTED`, `FILE_KIND`, `NO_SPACE`, `WORKSPACE_BROKEN`, `TOO_MANY_OPERATIONS`; with `replace`:
   *   `WORKSPACE_IN_USE`.
   */
  async import(
    name: WorkspaceName,
    chunks: AsyncIterable<Uint8Array>,
    options: { readonly replace: boolean; readonly signal: AbortSignal },
  ): Promise<Imported> {
    const { workspaces, transfers, logger } = this.#parts;
    using _ = transfers.stream(name.owner);
    const record = await workspaces.locked(name, () => workspaces.makeForImport(name));
    try {
      return await this.#import(record, chunks, options);
    } catch (error) {
      await workspaces
        .locked(name, () => workspaces.giveUp(record))
        .catch((left: unknown) => {
          const { workspaceId } = name;
          logger.warn({ workspaceId, err: left }, "a workspace that an import created could not be removed");
        });
      throw error;
    }
  }

  async #import(
    record: WorkspaceRecord,
    chunks: AsyncIterable<Uint8Array>,
    options: { readonly replace: boolean; readonly signal: AbortSignal },
  ): Promise<Imported> {
    const { workspaces, storage, store, mounts, quota } = this.#parts;
    const { replace, signal } = options;
    using memory = this.#parts.memory.open(record.owner, signal);
    if (replace) this.#assertUnused(record);
    else await quota.assertRoom(record, { signal });
    using incoming = quota.incoming(record, options);
    const { admit } = incoming;
    const staged = await storage.stage(record, chunks, { admit, take: memory.take, signal });
    try {
      return await workspaces.locked(record, async () => {
        throwIfAborted(signal);
        const now = store.find(record);
        const isNew = now?.number === record.number && now.state === "IMPORTING";
        const place = isNew ? now : await workspaces.findWhole(record);
        if (replace) {
          await mounts.closed(record, async () => {
            this.#assertUnused(record);
            await staged.replace(place, (tree) => store.setTree(record, tree));
          });
        } else {
          await quota.assertRoomFor(staged.sizeBytes, record, signal);
          await staged.merge(place);
        }
        if (isNew) workspaces.activate(record);
        await incoming.settle();
        const { entryCount, sizeBytes } = staged;
        return { workspace: workspaces.view(record), entryCount, sizeBytes };
      });
    } finally {
      await staged.discard();
    }
  }

  /**
   * Records that a trace uses the workspace, which is created if necessary. A trace uses at most one workspace of its
   * owner: it leaves its previous one.
   * @param progress of the request, which does not move a trace back that was moved since.
   * @throws `TOO_MANY_OPERATIONS` beyond 10,000 references; what {@link Workspaces.make} throws.
   */
  addReference(
    name: WorkspaceName,
    traceId: string,
    progress: RequestProgress = NO_PROGRESS,
  ): Promise<{ readonly workspace: WorkspaceView; readonly previousWorkspaceId: string }> {
    const { workspaces, store, clock } = this.#parts;
    return workspaces.locked(name, async () => {
      const { subject } = progress;
      if (subject !== undefined) return { workspace: workspaces.view(name), previousWorkspaceId: subject };
      await workspaces.make(name);
      const before = store.workspaceOf(name.owner, traceId);
      if (before !== name.workspaceId && store.refCount(name) >= MAX_REFS) {
        throw new BerthError(
          "TOO_MANY_OPERATIONS",
          `The workspace has reached its limit of ${MAX_REFS} references. Remove those that are done.`,
          { metadata: { workspace_id: name.workspaceId, limit: String(MAX_REFS) } },
        );
      }
      const previousWorkspaceId = before === name.workspaceId ? "" : (before ?? "");
      store.addRef(name, traceId, clock.wallMs(), () => progress.begin(previousWorkspaceId));
      return { workspace: workspaces.view(name), previousWorkspaceId };
    });
  }

  /**
   * Records that a trace no longer uses the workspace.
   * @param progress of the request, which does not remove a trace that was added again since.
   * @throws `WORKSPACE_NOT_FOUND`.
   */
  removeReference(
    name: WorkspaceName,
    traceId: string,
    progress: RequestProgress = NO_PROGRESS,
  ): Promise<WorkspaceView> {
    const { workspaces, store, clock } = this.#parts;
    return workspaces.locked(name, async () => {
      workspaces.find(name);
      if (progress.subject === undefined) {
        store.removeRef(name, traceId, clock.wallMs(), () => progress.begin(traceId));
      }
      return workspaces.view(name);
    });
  }

  /** The workspace that a trace belongs to. @throws `TRACE_NOT_FOUND`. */
  lookupTrace(owner: string, traceId: string): WorkspaceView {
    const { workspaces, store } = this.#parts;
    const workspaceId = store.workspaceOf(owner, traceId);
    if (workspaceId !== undefined) return workspaces.view({ owner, workspaceId });
    throw new BerthError("TRACE_NOT_FOUND", `The trace ${JSON.stringify(traceId)} belongs to no workspace.`, {
      metadata: { trace_id: traceId },
    });
  }

  #assertUnused(name: WorkspaceName): void {
    const using = this.#parts.users.users(name);
    if (using.length === 0) return;
    throw new BerthError(
      "WORKSPACE_IN_USE",
      `${using.length} sandboxes use the workspace, so it cannot be replaced. Delete them first, or import without replace.`,
      { metadata: { workspace_id: name.workspaceId, sandbox_count: String(using.length) } },
    );
  }
}

function inUse({ workspaceId }: WorkspaceName, refCount: number): BerthError {
  const traces = refCount === 1 ? "1 trace refers" : `${refCount} traces refer`;
  return new BerthError(
    "WORKSPACE_IN_USE",
    `The workspace ${JSON.stringify(workspaceId)} is in use: ${traces} to it. Remove the references first, or clean up with force.`,
    { metadata: { workspace_id: workspaceId, ref_count: String(refCount) } },
  );
}
