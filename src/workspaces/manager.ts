import type { Clock } from "../base/clock.ts";
import { BerthError, throwIfAborted } from "../base/errors.ts";
import { inBatches } from "../base/in-batches.ts";
import type { WorkspaceFiles } from "./files-port.ts";
import type { SharedDirectories, WorkspaceMounts } from "./mounts.ts";
import type { WorkspaceQuota } from "./quota.ts";
import type { WorkspaceSandboxes } from "./sandboxes.ts";
import type { WorkspaceStore } from "./store.ts";
import type { WorkspaceSweep } from "./sweep.ts";
import {
  type BrokenWorkspace,
  type WorkspaceName,
  type WorkspaceView,
  workspaceNotFound,
} from "./workspace.ts";
import type { WorkspaceDeleter, Workspaces } from "./workspaces.ts";

/** What {@link WorkspaceManager} is built of. */
export interface WorkspaceManagerParts {
  readonly workspaces: Workspaces;
  readonly store: WorkspaceStore;
  readonly files: WorkspaceFiles;
  readonly shared: SharedDirectories;
  readonly mounts: WorkspaceMounts;
  readonly quota: WorkspaceQuota;
  readonly sweep: WorkspaceSweep;
  readonly deleter: WorkspaceDeleter;
  readonly users: WorkspaceSandboxes;
  readonly clock: Clock;
}

/** A page of workspaces. */
export interface WorkspacePage {
  readonly workspaces: readonly WorkspaceView[];
  readonly broken: readonly BrokenWorkspace[];
  /** Id of the last one of the page; undefined where nothing follows. */
  readonly next: string | undefined;
}

/** What a cleanup did. */
export interface CleanedUp {
  /** Undefined: it was deleted. */
  readonly workspace: WorkspaceView | undefined;
  readonly clearedRefs: number;
}

/** What an import did. */
export interface Imported {
  readonly workspace: WorkspaceView;
  /** Entries of the archive, directories and links included. */
  readonly entryCount: number;
  /** Bytes of its regular files. */
  readonly sizeBytes: number;
}

/** Foreign things in the roots that a list tells of. */
const MAX_STRAYS = 1_000;

/** Creates, finds, fills and cleans up workspaces: directories that outlive the sandboxes they appear in. */
export class WorkspaceManager {
  readonly #parts: WorkspaceManagerParts;

  constructor(parts: WorkspaceManagerParts) {
    this.#parts = parts;
  }

  /** Goes on with what an earlier run of the service left half done, and begins to watch the quota. Never rejects. */
  async start(): Promise<void> {
    const { store, shared, workspaces, deleter, quota, sweep } = this.#parts;
    const records = store.all();
    for (const owner of new Set(records.map(({ owner }) => owner))) shared.know(owner);
    const begun = records.filter(({ state }) => state !== "ACTIVE");
    await inBatches(begun, (record) =>
      workspaces
        .locked(record, async () => {
          const known = store.find(record);
          if (known?.state === "DELETING") await deleter.finish(known, 0);
          else if (known?.state === "CREATING") await workspaces.make(known);
        })
        .catch((error: unknown) => deleter.tell(record, error)),
    );
    quota.start();
    sweep.start();
  }

  /** Ends the watch and what the start began. */
  async stop(): Promise<void> {
    await Promise.all([this.#parts.quota.stop(), this.#parts.sweep.stop()]);
  }

  /** Makes a workspace where there is none. @throws `WORKSPACE_BROKEN`, `NO_SPACE`. */
  create(name: WorkspaceName): Promise<{ readonly workspace: WorkspaceView; readonly created: boolean }> {
    const { workspaces } = this.#parts;
    return workspaces.locked(name, async () => {
      const { created } = await workspaces.make(name);
      return { workspace: workspaces.view(name), created };
    });
  }

  /** @param options.measure whether its size is measured anew. @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_BROKEN`. */
  async get(
    name: WorkspaceName,
    options: { readonly measure: boolean; readonly signal: AbortSignal },
  ): Promise<WorkspaceView> {
    const { workspaces, quota } = this.#parts;
    await workspaces.findWhole(name);
    if (options.measure) await quota.measure(name, options.signal);
    return workspaces.view(name);
  }

  /** Workspaces of an owner in byte order of their ids, broken ones beside. */
  async list(owner: string, after: string, limit: number): Promise<WorkspacePage> {
    const { store, files, workspaces, deleter } = this.#parts;
    const records = store.page(owner, after, limit + 1);
    const page = records.slice(0, limit);
    const found: WorkspaceView[] = [];
    const broken: BrokenWorkspace[] = [];
    for (const { workspaceId } of page) {
      const name = { owner, workspaceId };
      const problem = await files.problemOf(name);
      // It may be on its way in, or have gone while it was looked at.
      const state = store.find(name)?.state;
      const message = state === "DELETING" ? deleter.problemOf(name) : problem;
      if (state === "ACTIVE" && message === undefined) found.push(workspaces.view(name));
      else if ((state === "ACTIVE" || state === "DELETING") && message !== undefined)
        broken.push({ workspaceId, path: files.pathOf(name), message });
    }
    const next = records.length > limit ? page.at(-1)?.workspaceId : undefined;
    if (next === undefined) {
      const strays = await files.strays(owner, store.ids(owner), MAX_STRAYS);
      broken.push(...strays.map((stray) => ({ workspaceId: "", ...stray })));
    }
    return { workspaces: found, broken, next };
  }

  /**
   * Ends the use of a workspace: its sandboxes go, its references are cleared,
   * and with `force` its directory and itself. Goes on when its caller leaves.
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
    const { workspaces, store, users, deleter } = this.#parts;
    return workspaces.locked(name, async () => {
      const record = store.find(name);
      if (options.force) {
        const done = record
          ? await deleter.remove(record, options)
          : deleter.finished(name, options.requestId);
        if (done === undefined) throw workspaceNotFound(name);
        return { workspace: undefined, clearedRefs: done.clearedRefs };
      }
      workspaces.find(name);
      const refCount = store.refCount(name);
      if (refCount > 0) throw inUse(name, refCount);
      await users.removeUsers(name, options.graceMs);
      return { workspace: workspaces.view(name), clearedRefs: 0 };
    });
  }

  /** Streams the directory as a tar. @throws `WORKSPACE_NOT_FOUND`, `WORKSPACE_BROKEN`. */
  async *export(name: WorkspaceName, signal: AbortSignal): AsyncGenerator<Buffer> {
    await this.#parts.workspaces.findWhole(name);
    yield* this.#parts.files.export(name, signal);
  }

  /**
   * Unpacks a tar into a workspace, which is made where there is none. Nobody
   * waits while it comes: the workspace is only locked to move it into place.
   * @throws `ARCHIVE_REJECTED`, `FILE_KIND`, `NO_SPACE`, `WORKSPACE_BROKEN`; with `replace`: `WORKSPACE_IN_USE`.
   */
  async import(
    name: WorkspaceName,
    chunks: AsyncIterable<Uint8Array>,
    options: { readonly replace: boolean; readonly signal: AbortSignal },
  ): Promise<Imported> {
    const { workspaces, files, mounts, quota } = this.#parts;
    const { record } = await workspaces.locked(name, () => workspaces.make(name));
    if (options.replace) this.#assertUnused(name);
    else await quota.assertRoom(record, options.signal);
    const staged = await files.stage(record, chunks, options.signal);
    try {
      return await workspaces.locked(name, async () => {
        throwIfAborted(options.signal);
        await workspaces.findWhole(name);
        if (options.replace) {
          await mounts.closed(name, async () => {
            this.#assertUnused(name);
            await staged.replace();
          });
        } else {
          await quota.assertRoomFor(staged.sizeBytes, record, options.signal);
          await staged.merge();
        }
        await quota.measure(name);
        const { entryCount, sizeBytes } = staged;
        return { workspace: workspaces.view(name), entryCount, sizeBytes };
      });
    } finally {
      await staged.discard();
    }
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

/** Traces that may refer to one workspace. */
const MAX_REFS = 10_000;

/** Which traces use which workspaces. A trace belongs to one workspace of its owner at most. */
export class WorkspaceReferences {
  readonly #workspaces: Workspaces;
  readonly #store: WorkspaceStore;
  readonly #clock: Clock;

  constructor(workspaces: Workspaces, store: WorkspaceStore, clock: Clock) {
    this.#workspaces = workspaces;
    this.#store = store;
    this.#clock = clock;
  }

  /**
   * Records that a trace uses the workspace, which is made where there is none.
   * @throws `TOO_MANY_OPERATIONS` past 10,000 references; as {@link Workspaces.make}.
   */
  add(
    name: WorkspaceName,
    traceId: string,
  ): Promise<{ readonly workspace: WorkspaceView; readonly previousWorkspaceId: string }> {
    return this.#workspaces.locked(name, async () => {
      await this.#workspaces.make(name);
      const before = this.#store.workspaceOf(name.owner, traceId);
      if (before !== name.workspaceId && this.#store.refCount(name) >= MAX_REFS) {
        throw new BerthError(
          "TOO_MANY_OPERATIONS",
          `The workspace has ${MAX_REFS} references, and may not have more. Remove those that are done.`,
          { metadata: { workspace_id: name.workspaceId, limit: String(MAX_REFS) } },
        );
      }
      const previous = this.#store.addRef(name, traceId, this.#clock.wallMs());
      const previousWorkspaceId = previous === name.workspaceId ? "" : (previous ?? "");
      return { workspace: this.#workspaces.view(name), previousWorkspaceId };
    });
  }

  /** Records that a trace does not use the workspace any more. @throws `WORKSPACE_NOT_FOUND`. */
  remove(name: WorkspaceName, traceId: string): Promise<WorkspaceView> {
    return this.#workspaces.locked(name, async () => {
      this.#workspaces.find(name);
      this.#store.removeRef(name, traceId, this.#clock.wallMs());
      return this.#workspaces.view(name);
    });
  }

  /** The workspace that a trace belongs to. @throws `TRACE_NOT_FOUND`. */
  lookup(owner: string, traceId: string): WorkspaceView {
    const workspaceId = this.#store.workspaceOf(owner, traceId);
    if (workspaceId !== undefined) return this.#workspaces.view({ owner, workspaceId });
    throw new BerthError("TRACE_NOT_FOUND", `The trace ${JSON.stringify(traceId)} belongs to no workspace.`, {
      metadata: { trace_id: traceId },
    });
  }
}
