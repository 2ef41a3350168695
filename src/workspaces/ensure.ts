import type { Clock } from "../base/clock.ts";
import { BerthError, hasReason, invalidArgument, throwIfAborted } from "../base/errors.ts";
import { newId } from "../base/ids.ts";
import type { Logger } from "../base/logger.ts";
import type { EngineMonitor } from "../sandboxes/engine-monitor.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { SandboxSpec, SandboxView } from "../sandboxes/sandbox.ts";
import type { RequestedSpec } from "../sandboxes/spec.ts";
import type { RequestProgress } from "../state/request-log.ts";
import { mountsShared } from "./mounts.ts";
import type { WorkspaceQuota } from "./quota.ts";
import type { WorkspaceSandboxes } from "./sandboxes.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceRecord, WorkspaceStore } from "./store.ts";
import { sharedOf, type WorkspaceName, type WorkspaceView } from "./workspace.ts";
import type { Workspaces } from "./workspaces.ts";

interface WorkspaceEnsurerParts {
  readonly workspaces: Workspaces;
  readonly store: WorkspaceStore;
  readonly storage: WorkspaceStorage;
  readonly quota: WorkspaceQuota;
  readonly users: WorkspaceSandboxes;
  readonly sandboxes: SandboxManager;
  readonly monitor: EngineMonitor;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Whether it is an error if a workspace gets no sandbox. */
  readonly engineRequired: boolean;
  /** Where the workspace is mounted if the spec names no working directory. */
  readonly workingDir: string;
}

/** A workspace and its sandbox, or why it has none. */
interface Ensured {
  readonly workspace: WorkspaceView;
  readonly sandbox: SandboxView | undefined;
  /** Empty if there is a sandbox. */
  readonly unavailableReason: string;
  /** Whether the sandbox existed before. */
  readonly reused: boolean;
}

type SpecWithMounts = RequestedSpec & Pick<SandboxSpec, "mounts">;

/** Gives workspaces running sandboxes. */
export class WorkspaceEnsurer {
  readonly #parts: WorkspaceEnsurerParts;

  constructor(parts: WorkspaceEnsurerParts) {
    this.#parts = parts;
  }

  /**
   * Reuses the workspace's sandbox if it runs, resumes it if it is paused, and otherwise creates one with the same id
   * and the next generation.
   * @throws what {@link Workspaces.make} and {@link SandboxManager.create} throw; `NO_SPACE` if the workspace or the
   *   shared directory exceeds its quota.
   */
  async ensure(name: WorkspaceName, asked: RequestedSpec, signal: AbortSignal): Promise<Ensured> {
    const spec = this.#withWorkspace(name, asked);
    const request = { signal, arrivedMs: this.#parts.clock.monotonicMs() };
    return this.#parts.workspaces.locked(name, async () => {
      throwIfAborted(signal);
      const { record } = await this.#parts.workspaces.make(name);
      try {
        if (!this.#parts.monitor.available) throw engineDown();
        const reused = await this.#reuse(record, signal);
        const sandbox = reused ?? (await this.#create(record, spec, request));
        const workspace = this.#parts.workspaces.view(name);
        return { workspace, sandbox, unavailableReason: "", reused: reused !== undefined };
      } catch (error) {
        const isDown = hasReason(error, "ENGINE_UNAVAILABLE");
        if (!isDown || this.#parts.engineRequired) throw error;
        const { workspaceId } = name;
        this.#parts.logger.warn({ workspaceId, err: error }, "a workspace has no sandbox: no engine answers");
        const workspace = this.#parts.workspaces.view(name);
        return { workspace, sandbox: undefined, unavailableReason: error.message, reused: false };
      }
    });
  }

  /** Deletes the workspace's sandbox. The directory and the references stay. @throws `WORKSPACE_NOT_FOUND`. */
  stop(name: WorkspaceName, graceMs: number | undefined, progress?: RequestProgress): Promise<WorkspaceView> {
    const { workspaces, users, sandboxes, store, clock } = this.#parts;
    return workspaces.locked(name, async () => {
      const record = workspaces.find(name);
      const current = users.current(record);
      if (current !== undefined) {
        await sandboxes.delete(current, graceMs, undefined, progress);
        try {
          store.setSandbox(name, record.sandboxId, clock.wallMs());
        } catch (error) {
          // The sandbox is gone, and only the time of that is not kept.
          if (!hasReason(error, "NO_SPACE")) throw error;
        }
      }
      return workspaces.view(name);
    });
  }

  async #reuse(record: WorkspaceRecord, signal: AbortSignal): Promise<SandboxView | undefined> {
    const { users, sandboxes } = this.#parts;
    const current = users.current(record);
    switch (current?.state) {
      case "RUNNING":
        return sandboxes.keepAlive(current);
      case "PAUSED":
        return sandboxes.resume(current, signal);
      case "CREATING":
      case "DELETING":
        // It is ending, or another call is creating it: replace it.
        await sandboxes.delete(current, 0);
    }
    return undefined;
  }

  async #create(
    record: WorkspaceRecord,
    spec: SpecWithMounts,
    request: { readonly signal: AbortSignal; readonly arrivedMs: number },
  ): Promise<SandboxView> {
    const { storage, quota, users, sandboxes, store, clock } = this.#parts;
    await quota.assertRoom(record, request);
    if (storage.sharing && mountsShared(spec)) await quota.assertRoom(sharedOf(record.owner), request);
    const keeps = record.sandboxId !== "" && users.isFree(record);
    const sandboxId = keeps ? record.sandboxId : newId("sbx");
    // Record it first, so that after a crash in between Berth finds the sandbox.
    store.setSandbox(record, sandboxId, clock.wallMs());
    return sandboxes.create(record.owner, spec, { sandboxId, signal: request.signal });
  }

  #withWorkspace({ workspaceId }: WorkspaceName, asked: RequestedSpec): SpecWithMounts {
    const target = asked.workingDir ?? this.#parts.workingDir;
    const mounts = asked.mounts ?? [];
    if (target === "/") throw invalidArgument("spec.working_dir", "a workspace cannot take the place of /.");
    const twice = mounts.findIndex((mount) => mount.target === target);
    if (twice >= 0) {
      throw invalidArgument(
        `spec.mounts[${twice}].target`,
        `${JSON.stringify(target)} is the working directory, where the workspace appears. Choose another one.`,
      );
    }
    return {
      ...asked,
      mounts: [{ source: { kind: "workspace", workspaceId }, target, readOnly: false }, ...mounts],
    };
  }
}

function engineDown(): BerthError {
  return new BerthError("ENGINE_UNAVAILABLE", "The engine does not answer: the workspace has no sandbox.", {
    retryAfterMs: 1_000,
  });
}
