import type { Clock } from "../base/clock.ts";
import { BerthError } from "../base/errors.ts";
import type { EngineMount } from "../engine/port.ts";
import type { SandboxSpec } from "../sandboxes/sandbox.ts";
import type { MountSources } from "../sandboxes/spec.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import {
  sharedOf,
  type WorkspaceName,
  workspaceBroken,
  workspaceKey,
  workspaceNotFound,
} from "./workspace.ts";

/** Where the shared directory is mounted in every sandbox with a workspace. */
const SHARED_TARGET = "/shared";

/** Refuses an owner that exceeds its quota of workspaces. @throws `TENANT_QUOTA` */
type AssertTenantRoom = (owner: string, signal: AbortSignal) => Promise<void>;

/** The mounts of sandboxes with workspaces: the directory of each workspace, and the owner's shared directory. */
export class WorkspaceMounts implements MountSources {
  readonly #store: WorkspaceStore;
  readonly #storage: WorkspaceStorage;
  readonly #clock: Clock;
  readonly #assertTenantRoom: AssertTenantRoom;
  readonly #closed = new Set<string>();

  constructor(parts: {
    readonly store: WorkspaceStore;
    readonly storage: WorkspaceStorage;
    readonly clock: Clock;
    readonly assertTenantRoom: AssertTenantRoom;
  }) {
    this.#store = parts.store;
    this.#storage = parts.storage;
    this.#clock = parts.clock;
    this.#assertTenantRoom = parts.assertTenantRoom;
  }

  /** A sandbox with a workspace may write, to the workspace or to the shared directory. */
  async admit(owner: string, spec: SandboxSpec, signal: AbortSignal): Promise<void> {
    if (workspacesOf(owner, spec).length > 0) await this.#assertTenantRoom(owner, signal);
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
      const problem = await this.#storage.problemOf(name);
      if (problem !== undefined) throw workspaceBroken(name, problem);
    }
    const mounts = spec.mounts.map(({ source, target, readOnly }): EngineMount => {
      if (source.kind === "host")
        return { kind: "host", hostPath: source.path, target, readOnly, giveToUser: false };
      const name = { owner, workspaceId: source.workspaceId };
      const record = this.#store.find(name);
      if (record === undefined) throw workspaceNotFound(name);
      return this.#storage.mountOf(record, { target, readOnly, giveToUser: !readOnly });
    });
    if (!this.#storage.sharing || !mountsShared(spec)) return mounts;
    const shared = await this.makeShared(owner);
    const at = { target: SHARED_TARGET, readOnly: false, giveToUser: false };
    return [...mounts, this.#storage.mountOf(shared, at)];
  }

  /** Keeps further sandboxes from mounting the workspace while `work` runs. */
  async closed<T>(name: WorkspaceName, work: () => Promise<T>): Promise<T> {
    const key = workspaceKey(name);
    this.#closed.add(key);
    try {
      return await work();
    } finally {
      this.#closed.delete(key);
    }
  }

  /** Creates an owner's shared directory unless it exists. @throws `WORKSPACE_BROKEN`. */
  async makeShared(owner: string): Promise<WorkspaceRecord> {
    const record = this.recordShared(owner);
    await this.#storage.makeShared(record);
    return record;
  }

  /** The record of an owner's shared directory. Adds it if there is none. */
  recordShared(owner: string): WorkspaceRecord {
    const name = sharedOf(owner);
    return this.#store.find(name) ?? this.#store.insert(name, "ACTIVE", this.#clock.wallMs());
  }
}

/** Whether a sandbox with these mounts has the shared directory, if the storage offers one. */
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
