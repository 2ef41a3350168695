import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { EngineMount } from "../engine/port.ts";
import type { MountSources } from "../sandboxes/mount-sources.ts";
import type { SandboxSpec } from "../sandboxes/sandbox.ts";
import type { WorkspaceFiles } from "./files-port.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import {
  sharedOf,
  type WorkspaceName,
  workspaceBroken,
  workspaceKey,
  workspaceNotFound,
} from "./workspace.ts";

/** The mounts of sandboxes with workspaces: each one's directory, and the shared one. */
export class WorkspaceMounts implements MountSources {
  readonly #store: WorkspaceStore;
  readonly #files: WorkspaceFiles;
  readonly #shared: SharedDirectories;
  readonly #closed = new Set<string>();

  constructor(store: WorkspaceStore, files: WorkspaceFiles, shared: SharedDirectories) {
    this.#store = store;
    this.#files = files;
    this.#shared = shared;
  }

  check(owner: string, spec: SandboxSpec): void {
    for (const name of workspacesOf(owner, spec)) {
      if (this.#store.find(name)?.state !== "ACTIVE") throw workspaceNotFound(name);
      if (this.#closed.has(workspaceKey(name))) {
        throw new BerthError(
          "WORKSPACE_IN_USE",
          `The workspace ${JSON.stringify(name.workspaceId)} is being replaced by an import. Try again when that is done.`,
          { metadata: { workspace_id: name.workspaceId }, retryAfterMs: 1_000 },
        );
      }
    }
  }

  async resolve(owner: string, spec: SandboxSpec): Promise<EngineMount[]> {
    this.check(owner, spec);
    for (const name of workspacesOf(owner, spec)) {
      const problem = await this.#files.problemOf(name);
      if (problem !== undefined) throw workspaceBroken(name, problem);
    }
    const mounts = spec.mounts.map(({ source, target, readOnly }): EngineMount => {
      if (source.kind === "host") return { hostPath: source.path, target, readOnly, giveToUser: false };
      const hostPath = this.#files.pathOf({ owner, workspaceId: source.workspaceId });
      return { hostPath, target, readOnly, giveToUser: !readOnly, own: true };
    });
    if (!mountsShared(spec)) return mounts;
    const hostPath = await this.#shared.pathOf(owner);
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
}

/** The workspaces that a spec mounts. */
export function workspacesOf(owner: string, spec: SandboxSpec): WorkspaceName[] {
  return spec.mounts.flatMap(({ source }) =>
    source.kind === "workspace" ? [{ owner, workspaceId: source.workspaceId }] : [],
  );
}

/** Where the shared directory appears in every sandbox that has a workspace. */
export const SHARED_TARGET = "/shared";

/** Finds and makes what the sandboxes of each owner share. */
export class SharedDirectories {
  readonly #store: WorkspaceStore;
  readonly #files: WorkspaceFiles;
  readonly #clock: Clock;

  constructor(parts: {
    readonly store: WorkspaceStore;
    readonly files: WorkspaceFiles;
    readonly clock: Clock;
  }) {
    this.#store = parts.store;
    this.#files = parts.files;
    this.#clock = parts.clock;
  }

  /** Absolute path of an owner's, which is made where there is none. @throws `WORKSPACE_BROKEN`. */
  async pathOf(owner: string): Promise<string> {
    return this.#files.sharedPathOf(this.know(owner));
  }

  /** Has the store know an owner's. */
  know(owner: string): WorkspaceRecord {
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
