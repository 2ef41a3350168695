import path from "node:path";
import type { Clock } from "../base/clock.ts";
import type { Finding } from "../base/diagnosis.ts";
import type { Logger } from "../base/logger.ts";
import { exposureAt, exposureFindings } from "../base/private-directory.ts";
import type { TemporaryNames } from "../files/temporary-names.ts";
import type { EngineMonitor } from "../sandboxes/engine-monitor.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { MountSources } from "../sandboxes/mount-sources.ts";
import { WorkspaceEnsurer } from "./ensure.ts";
import { WorkspaceDirectories } from "./host/directories.ts";
import { Layout } from "./host/layout.ts";
import { diagnoseQuota } from "./host/project-quota.ts";
import { sharedRootExposure } from "./host/shared-directories.ts";
import { WorkspaceManager, WorkspaceReferences } from "./manager.ts";
import { SharedDirectories, WorkspaceMounts } from "./mounts.ts";
import { WorkspaceQuota } from "./quota.ts";
import { WorkspaceSandboxes } from "./sandboxes.ts";
import type { WorkspaceStore } from "./store.ts";
import { WorkspaceSweep } from "./sweep.ts";
import { WorkspaceDeleter, Workspaces } from "./workspaces.ts";

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
    const deleter = new WorkspaceDeleter({ store, files, sandboxes: users, clock, logger });
    const workspaces = new Workspaces({ store, files, shared, sandboxes: users, deleter, clock });
    const quota = new WorkspaceQuota({ store, files, users, logger });
    const sweep = new WorkspaceSweep({
      store,
      files,
      isLeftBehind: (name) => names.isLeftBehind(name),
      logger,
    });
    const common = { workspaces, store, files, shared, mounts, quota, sweep, deleter, users, clock, logger };
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
