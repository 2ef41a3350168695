import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { WorkspaceStore } from "./store.ts";
import type { WorkspaceName, WorkspaceView } from "./workspace.ts";
import type { Workspaces } from "./workspaces.ts";

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
