import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { EngineMount } from "../engine/port.ts";
import type { SandboxSpec } from "../sandboxes/sandbox.ts";
import type { MountSources } from "../sandboxes/spec.ts";
import type { WorkspaceDirectories } from "./host/directories.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import {
  sharedOf,
  type WorkspaceName,
  workspaceBroken,
  workspaceKey,
  workspaceNotFound,
} from "./workspace.ts";

/** Where the shared directory appears in every sandbox that has a workspace. */
const SHARED_TARGET = "/shared";

/** The mounts of sandboxes with workspaces: each one's directory, and the shared one of their owner. */
export class WorkspaceMounts implements MountSources {
  readonly #store: WorkspaceStore;
  readonly #directories: WorkspaceDirectories;
  readonly #clock: Clock;
  readonly #closed = new Set<string>();

  constructor(store: WorkspaceStore, directories: WorkspaceDirectories, clock: Clock) {
    this.#store = store;
    this.#directories = directories;
    this.#clock = clock;
  }

  check(owner: string, spec: SandboxSpec): void {
    for (const name of workspacesOf(owner, spec)) {
      if (this.#store.find(name)?.state !== "ACTIVE") throw workspaceNotFound(name);
      if (this.#closed.has(workspaceKey(name))) {
        throw new BerthError(
          "WORKSPACE_IN_USE",
          `An import is replacing the workspace ${JSON.stringify(name.workspaceId)}. Try again when it is done.`,
          { metadata: { workspace_id: name.workspaceId }, retryAfterMs: 1_000 },
        );
      }
    }
  }

  async resolve(owner: string, spec: SandboxSpec): Promise<EngineMount[]> {
    this.check(owner, spec);
    for (const name of workspacesOf(owner, spec)) {
      const problem = await this.#directories.problemOf(name);
      if (problem !== undefined) throw workspaceBroken(name, problem);
    }
    const mounts = spec.mounts.map(({ source, target, readOnly }): EngineMount => {
      if (source.kind === "host") return { hostPath: source.path, target, readOnly, giveToUser: false };
      const hostPath = this.#directories.pathOf({ owner, workspaceId: source.workspaceId });
      return { hostPath, target, readOnly, giveToUser: !readOnly, own: true };
    });
    if (!mountsShared(spec)) return mounts;
    const hostPath = await this.sharedPathOf(owner);
    return [...mounts, { hostPath, target: SHARED_TARGET, readOnly: false, giveToUser: false, own: true }];
  }

  /** Lets no further sandbox mount the workspace while `work` runs. */
  async closed<T>(name: WorkspaceName, work: () => Promise<T>): Promise<T> {
    const key = workspaceKey(name);
    this.#closed.add(key);
    try {
      return await work();
    } finally {
      this.#closed.delete(key);
    }
  }

  /** Absolute path of an owner's shared directory, which is made where there is none. @throws `WORKSPACE_BROKEN`. */
  async sharedPathOf(owner: string): Promise<string> {
    return this.#directories.sharedPathOf(this.recordShared(owner));
  }

  /** The record of an owner's shared directory, which is added where there is none. */
  recordShared(owner: string): WorkspaceRecord {
    const name = sharedOf(owner);
    return this.#store.find(name) ?? this.#store.insert(name, "ACTIVE", this.#clock.wallMs());
  }
}

/** Whether the shared directory appears in a sandbox. */
export function mountsShared({ mounts }: Pick<SandboxSpec, "mounts">): boolean {
  return (
    mounts.some(({ source }) => source.kind === "workspace") &&
    mounts.every(({ target }) => target !== SHARED_TARGET)
  );
}

/** The workspaces that a spec mounts. */
function workspacesOf(owner: string, spec: SandboxSpec): WorkspaceName[] {
  return spec.mounts.flatMap(({ source }) =>
    source.kind === "workspace" ? [{ owner, workspaceId: source.workspaceId }] : [],
  );
}
