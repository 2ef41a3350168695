import { BerthError } from "../base/errors.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { SandboxState, SandboxView, WorkspaceEventBody } from "../sandboxes/sandbox.ts";
import { mountsShared } from "./mounts.ts";
import type { WorkspaceRecord } from "./store.ts";
import { isShared, type WorkspaceName } from "./workspace.ts";

const LIVE: ReadonlySet<SandboxState> = new Set(["CREATING", "RUNNING", "PAUSED", "DELETING"]);

/** The sandboxes in which workspaces appear. */
export class WorkspaceSandboxes {
  readonly #sandboxes: SandboxManager;

  constructor(sandboxes: SandboxManager) {
    this.#sandboxes = sandboxes;
  }

  /** The live sandbox that was made for a workspace; undefined where it has none. */
  current(record: WorkspaceRecord): SandboxView | undefined {
    if (record.sandboxId === "") return undefined;
    try {
      const view = this.#sandboxes.get(record);
      // Its owner may have made something else under the id since.
      return LIVE.has(view.state) && uses(view, record) ? view : undefined;
    } catch (error) {
      if (error instanceof BerthError && error.reason === "SANDBOX_NOT_FOUND") return undefined;
      throw error;
    }
  }

  /** Whether the id of the workspace's sandbox is free for another one. */
  isFree(record: WorkspaceRecord): boolean {
    try {
      return !LIVE.has(this.#sandboxes.get(record).state);
    } catch (error) {
      if (error instanceof BerthError && error.reason === "SANDBOX_NOT_FOUND") return true;
      throw error;
    }
  }

  /** Every live sandbox in which a workspace, or an owner's shared directory, appears. */
  users(name: WorkspaceName): SandboxView[] {
    return this.#sandboxes
      .list(name.owner, { labels: {}, states: LIVE })
      .items.filter((sandbox) => uses(sandbox, name));
  }

  /** Emits an event of every sandbox of {@link users}. */
  emit(name: WorkspaceName, body: WorkspaceEventBody): void {
    for (const sandbox of this.users(name)) this.#sandboxes.emit(sandbox, body);
  }

  /** Deletes every sandbox in which a workspace appears; returns when they are gone. */
  async removeUsers(name: WorkspaceName, graceMs: number | undefined): Promise<void> {
    await Promise.all(this.users(name).map((sandbox) => this.#sandboxes.delete(sandbox, graceMs)));
  }
}

function uses({ spec }: SandboxView, name: WorkspaceName): boolean {
  if (isShared(name)) return mountsShared(spec);
  return spec.mounts.some(
    ({ source }) => source.kind === "workspace" && source.workspaceId === name.workspaceId,
  );
}
