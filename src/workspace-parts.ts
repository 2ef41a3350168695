import path from "node:path";
import type { Finding } from "./core/diagnosis.ts";
import type { Clock } from "./core/ports/clock.ts";
import type { Logger } from "./core/ports/logger.ts";
import type { WorkspaceStore } from "./core/ports/workspace-store.ts";
import type { EngineMonitor } from "./core/sandbox/engine-monitor.ts";
import type { MountSources } from "./core/sandbox/mount-sources.ts";
import type { SandboxManager } from "./core/sandbox/sandbox-manager.ts";
import { SharedDirectories } from "./core/workspace/shared-directories.ts";
import { WorkspaceEnsurer } from "./core/workspace/workspace-ensure.ts";
import { WorkspaceManager } from "./core/workspace/workspace-manager.ts";
import { WorkspaceMounts } from "./core/workspace/workspace-mounts.ts";
import { WorkspaceQuota } from "./core/workspace/workspace-quota.ts";
import { WorkspaceReferences } from "./core/workspace/workspace-references.ts";
import { WorkspaceRemover } from "./core/workspace/workspace-remover.ts";
import { WorkspaceSandboxes } from "./core/workspace/workspace-sandboxes.ts";
import { WorkspaceSweep } from "./core/workspace/workspace-sweep.ts";
import { Workspaces } from "./core/workspace/workspaces.ts";
import type { TemporaryNames } from "./files/temporary-names.ts";
import { exposureAt, exposureFindings } from "./private-directory.ts";
import { diagnoseQuota } from "./workspace/diagnose-quota.ts";
import { Layout } from "./workspace/layout.ts";
import { sharedRootExposure } from "./workspace/shared-root.ts";
import { WorkspaceDirectories } from "./workspace/workspace-directories.ts";

/** Settings of workspaces. */
export interface WorkspaceSettings {
  /** Holds a directory for each workspace. Undefined: `workspaces` below the data directory. */
  readonly workspacesRoot: string | undefined;
  /** Appears in every sandbox that has a workspace. Undefined: `shared` below the data directory. */
  readonly sharedRoot: string | undefined;
  /** Bytes that one may take; undefined: no bound. */
  readonly workspaceQuotaBytes: number | undefined;
  /** Bytes that what an owner's sandboxes share may take; undefined: no bound. */
  readonly sharedQuotaBytes: number | undefined;
  /** Whether a workspace that cannot have a sandbox is a failure. */
  readonly dockerRequired: boolean;
}

/** What workspaces need to know of the service's other settings. */
interface ServiceSettings {
  readonly dataDir: string;
  readonly defaults: { readonly workingDir: string };
}

type Roots = Pick<WorkspaceSettings, "workspacesRoot" | "sharedRoot"> & Pick<ServiceSettings, "dataDir">;
type Quotas = Pick<WorkspaceSettings, "workspaceQuotaBytes" | "sharedQuotaBytes">;

function rootsOf({ workspacesRoot, sharedRoot, dataDir }: Roots) {
  return {
    root: workspacesRoot ?? path.join(dataDir, "workspaces"),
    sharedRoot: sharedRoot ?? path.join(dataDir, "shared"),
  };
}

/**
 * Looks which roots a start would refuse since the host's users may reach what sandboxes write there, and who would
 * hold the quotas. Changes nothing.
 */
export async function diagnoseRoots(settings: Roots & Quotas): Promise<Finding[]> {
  const { root, sharedRoot } = rootsOf(settings);
  return [
    ...exposureFindings("workspaces-root", exposureAt(new Layout(root, sharedRoot).privateRoot)),
    ...exposureFindings("shared-root", sharedRootExposure(sharedRoot)),
    ...(await diagnoseQuota("workspace-quota", settings.workspaceQuotaBytes, root)),
    ...(await diagnoseQuota("shared-quota", settings.sharedQuotaBytes, sharedRoot)),
  ];
}

/** What sandboxes need of workspaces, and workspaces of sandboxes, which are made between the two. */
export class WorkspaceAssembly {
  readonly mounts: MountSources;
  readonly #settings: WorkspaceSettings & ServiceSettings;
  readonly #parts: {
    readonly store: WorkspaceStore;
    readonly names: TemporaryNames;
    readonly clock: Clock;
    readonly logger: Logger;
  };
  readonly #files: WorkspaceDirectories;
  readonly #shared: SharedDirectories;
  readonly #mounts: WorkspaceMounts;

  constructor(
    settings: WorkspaceSettings & ServiceSettings,
    parts: {
      readonly store: WorkspaceStore;
      readonly names: TemporaryNames;
      readonly clock: Clock;
      readonly logger: Logger;
    },
  ) {
    this.#settings = settings;
    this.#parts = parts;
    const { workspaceQuotaBytes: quotaBytes, sharedQuotaBytes } = settings;
    const options = { ...rootsOf(settings), quotaBytes, sharedQuotaBytes };
    this.#files = new WorkspaceDirectories(options, parts.logger);
    this.#shared = new SharedDirectories({ ...parts, files: this.#files });
    this.#mounts = new WorkspaceMounts(parts.store, this.#files, this.#shared);
    this.mounts = this.#mounts;
  }

  /** Makes the directories ready; to be awaited before the first call. */
  prepare(): Promise<void> {
    return this.#files.prepare();
  }

  /** Puts the rest together. */
  finish(sandboxes: SandboxManager, monitor: EngineMonitor) {
    const files = this.#files;
    const mounts = this.#mounts;
    const shared = this.#shared;
    const { store, names, clock, logger } = this.#parts;
    const users = new WorkspaceSandboxes(sandboxes);
    const remover = new WorkspaceRemover({ store, files, sandboxes: users, clock, logger });
    const workspaces = new Workspaces({ store, files, shared, sandboxes: users, remover, clock });
    const quota = new WorkspaceQuota({ store, files, users, logger });
    const sweep = new WorkspaceSweep({
      store,
      files,
      isLeftBehind: (name) => names.isLeftBehind(name),
      logger,
    });
    const common = { workspaces, store, files, shared, mounts, quota, sweep, remover, users, clock, logger };
    return {
      workspaces: new WorkspaceManager(common),
      quota,
      references: new WorkspaceReferences(workspaces, store, clock),
      ensurer: new WorkspaceEnsurer({
        ...common,
        sandboxes,
        monitor,
        engineRequired: this.#settings.dockerRequired,
        workingDir: this.#settings.defaults.workingDir,
      }),
    };
  }
}
