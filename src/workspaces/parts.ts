import path from "node:path";
import type { Clock } from "../base/clock.ts";
import type { Finding } from "../base/diagnosis.ts";
import { BerthError } from "../base/errors.ts";
import type { Logger } from "../base/logger.ts";
import { MemoryBudget } from "../base/memory-budget.ts";
import { realPlace } from "../base/place.ts";
import { exposureAt, exposureFindings } from "../base/private-directory.ts";
import type { EngineVolumes } from "../engine/port.ts";
import type { TemporaryNames } from "../files/temporary-names.ts";
import type { EngineMonitor } from "../sandboxes/engine-monitor.ts";
import type { SandboxManager } from "../sandboxes/manager.ts";
import type { TenantQuotas } from "../sandboxes/tenant-quotas.ts";
import type { ServiceTime } from "../state/service-time.ts";
import { WorkspaceDiff } from "./diff.ts";
import { WorkspaceEnsurer } from "./ensure.ts";
import { WorkspaceFork } from "./fork.ts";
import { WorkspaceDirectories } from "./host/directories.ts";
import { Layout } from "./host/layout.ts";
import { diagnoseQuota } from "./host/project-quota.ts";
import { berthsOwn, sharedRootExposure } from "./host/shared-directories.ts";
import { WorkspaceManager } from "./manager.ts";
import type { WorkspaceMounts } from "./mounts.ts";
import { WorkspaceQuota } from "./quota.ts";
import { WorkspaceSandboxes } from "./sandboxes.ts";
import type { WorkspaceStorage } from "./storage.ts";
import type { WorkspaceStore } from "./store.ts";
import { WorkspaceSweep } from "./sweep.ts";
import { Transfers } from "./transfers.ts";
import { VolumeStorage } from "./volumes/storage.ts";
import { Workspaces } from "./workspaces.ts";

interface WorkspaceSettings {
  /** Contains a directory for each workspace. Undefined: `workspaces` below the data directory. */
  readonly workspacesRoot: string | undefined;
  /** Mounted in every sandbox with a workspace. Undefined: `shared` below the data directory. */
  readonly sharedRoot: string | undefined;
  /** Size limit of a workspace in bytes. Undefined: no limit. */
  readonly workspaceQuotaBytes: number | undefined;
  /** Size limit of an owner's shared directory in bytes. Undefined: no limit. */
  readonly sharedQuotaBytes: number | undefined;
  /** Whether it is an error if a workspace gets no sandbox. */
  readonly dockerRequired: boolean;
}

/** The service's other settings that workspaces need. */
interface ServiceSettings {
  readonly dataDir: string;
  readonly defaults: { readonly workingDir: string };
}

interface StorageParts {
  /** Volumes of the engine. Undefined: it mounts directories of the host. */
  readonly volumes: EngineVolumes | undefined;
  readonly names: TemporaryNames;
  readonly instance: string;
  readonly logger: Logger;
}

type Roots = Pick<WorkspaceSettings, "workspacesRoot" | "sharedRoot"> & Pick<ServiceSettings, "dataDir">;
type Quotas = Pick<WorkspaceSettings, "workspaceQuotaBytes" | "sharedQuotaBytes">;

/** Without links, because a mount is refused if its path leads elsewhere. */
function rootsOf({ workspacesRoot, sharedRoot, dataDir }: Roots) {
  return {
    dataDir,
    root: realPlace(workspacesRoot ?? path.join(dataDir, "workspaces")),
    sharedRoot: realPlace(sharedRoot ?? path.join(dataDir, "shared")),
  };
}

/**
 * Finds roots that a start would refuse because the host's users may reach what sandboxes write there, or sandboxes
 * what is not theirs, and whether quotas would be enforced. Changes nothing.
 */
export async function diagnoseRoots(settings: Roots & Quotas): Promise<Finding[]> {
  const { root, sharedRoot, dataDir } = rootsOf(settings);
  const layout = new Layout(root, sharedRoot);
  return [
    ...exposureFindings("workspaces-root", exposureAt(layout.privateRoot)),
    ...exposureFindings("shared-root", sharedRootExposure(sharedRoot, berthsOwn(layout, dataDir))),
    ...(await diagnoseQuota("workspace-quota", settings.workspaceQuotaBytes, root)),
    ...(await diagnoseQuota("shared-quota", settings.sharedQuotaBytes, sharedRoot)),
  ];
}

/**
 * The storage for workspaces: volumes if the engine has them, otherwise directories of the host. Call `prepare()`
 * before any other method.
 * @throws `INVALID_ARGUMENT` for options that do not apply to the engine's volumes.
 */
export function workspaceStorage(
  settings: Roots & Quotas,
  { volumes, names, instance, logger }: StorageParts,
): WorkspaceStorage {
  const { workspaceQuotaBytes: quotaBytes, sharedQuotaBytes } = settings;
  if (volumes !== undefined) {
    if ((quotaBytes ?? sharedQuotaBytes) !== undefined) {
      throw new BerthError(
        "INVALID_ARGUMENT",
        "--workspace-quota and --shared-quota bound directories of the service's machine. Where workspaces are volumes, leave them out: --workspace-volume-size bounds each.",
      );
    }
    return new VolumeStorage({ volumes, names, instance, logger });
  }
  return new WorkspaceDirectories({ ...rootsOf(settings), quotaBytes, sharedQuotaBytes }, names, logger);
}

/** Builds the parts of workspaces. `mounts` exists before, because sandboxes need it. */
export function createWorkspaces(
  settings: Pick<WorkspaceSettings, "dockerRequired"> & Pick<ServiceSettings, "defaults">,
  parts: {
    readonly store: WorkspaceStore;
    readonly storage: WorkspaceStorage;
    readonly mounts: WorkspaceMounts;
    readonly names: TemporaryNames;
    readonly sandboxes: SandboxManager;
    readonly quotas: TenantQuotas;
    readonly monitor: EngineMonitor;
    /** Limits what imports gather. Default: nothing does. */
    readonly memory?: MemoryBudget;
    readonly clock: Clock;
    readonly time: ServiceTime;
    readonly logger: Logger;
  },
) {
  const users = new WorkspaceSandboxes(parts.sandboxes);
  const transfers = new Transfers();
  const quota = new WorkspaceQuota({ ...parts, users, transfers });
  const workspaces = new Workspaces({ ...parts, users, quota });
  const memory = parts.memory ?? new MemoryBudget(Number.POSITIVE_INFINITY);
  const sweep = new WorkspaceSweep({ ...parts, isLeftBehind: (name) => parts.names.isLeftBehind(name) });
  return {
    diffs: new WorkspaceDiff({ ...parts, workspaces, transfers }),
    forks: new WorkspaceFork({ ...parts, workspaces, quota, transfers }),
    workspaces: new WorkspaceManager({ ...parts, workspaces, quota, sweep, users, transfers, memory }),
    quota,
    ensurer: new WorkspaceEnsurer({
      ...parts,
      workspaces,
      quota,
      users,
      engineRequired: settings.dockerRequired,
      workingDir: settings.defaults.workingDir,
    }),
  };
}
