import { hasReason } from "../base/errors.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { SandboxState, SandboxView, WorkspaceEventBody } from "../sandboxes/sandbox.ts";
import { mountsShared } from "./mounts.ts";
import type { WorkspaceRecord } from "./store.ts";
import { isShared, type WorkspaceName } from "./workspace.ts";

const LIVE: ReadonlySet<SandboxState> = new Set(["CREATING", "RUNNING", "PAUSED", "DELETING"]);

/** The sandboxes in which workspaces are mounted. */
export class WorkspaceSandboxes {
  readonly #sandboxes: SandboxManager;

  constructor(sandboxes: SandboxManager) {
    this.#sandboxes = sandboxes;
  }

  /** The live sandbox that was created for a workspace. Undefined if there is none. */
  current(record: WorkspaceRecord): SandboxView | undefined {
    if (record.sandboxId === "") return undefined;
    const view = this.#live(record);
    // Its owner may have created another sandbox with this id since.
    return view && uses(view, record) ? view : undefined;
  }

  /** Whether the id of the workspace's sandbox can be used for a new one. */
  isFree(record: WorkspaceRecord): boolean {
    return this.#live(record) === undefined;
  }

  /** Every live sandbox in which a workspace, or an owner's shared directory, is mounted. */
  users(name: WorkspaceName): SandboxView[] {
    return this.#sandboxes
      .list(name.owner, { labels: {}, states: LIVE })
      .items.filter((sandbox) => uses(sandbox, name));
  }

  /** Emits an event for each of the {@link users}. */
  emit(name: WorkspaceName, body: WorkspaceEventBody): void {
    for (const sandbox of this.users(name)) this.#sandboxes.emit(sandbox, body);
  }

  /** Deletes every sandbox in which a workspace is mounted. Returns when they are gone. */
  async removeUsers(name: WorkspaceName, graceMs: number | undefined): Promise<void> {
    await Promise.all(this.users(name).map((sandbox) => this.#sandboxes.delete(sandbox, graceMs)));
  }

  /** The live sandbox with the id in a record. */
  #live(record: WorkspaceRecord): SandboxView | undefined {
    try {
      const view = this.#sandboxes.get(record);
      return LIVE.has(view.state) ? view : undefined;
    } catch (error) {
      if (hasReason(error, "SANDBOX_NOT_FOUND")) return undefined;
      throw error;
    }
  }
}

function uses({ spec }: SandboxView, name: WorkspaceName): boolean {
  if (isShared(name)) return mountsShared(spec);
  return spec.mounts.some(
    ({ source }) => source.kind === "workspace" && source.workspaceId === name.workspaceId,
  );
}
