import type { MemoryBudget } from "../../../src/base/memory-budget.ts";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import { TenantQuotas } from "../../../src/sandboxes/tenant-quotas.ts";
import { ServiceTime } from "../../../src/state/service-time.ts";
import { Store } from "../../../src/store.ts";
import { WorkspaceMounts } from "../../../src/workspaces/mounts.ts";
import { createWorkspaces, workspaceStorage } from "../../../src/workspaces/parts.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { MemoryLog } from "../../support/memory-log.ts";
import { newManager, newWorld } from "../../unit/sandboxes/support.ts";

/** Workspaces on a store and directories that outlive them, with an engine that a test can delay. */
export async function openWorkspaces(
  dataDir: string,
  quotas: { readonly workspace?: number; readonly shared?: number; readonly tenant?: number } = {},
  memory?: MemoryBudget,
) {
  const store = Store.open(dataDir);
  const settings = {
    workspacesRoot: undefined,
    sharedRoot: undefined,
    workspaceQuotaBytes: quotas.workspace,
    sharedQuotaBytes: quotas.shared,
    dockerRequired: false,
    dataDir,
    defaults: { workingDir: "/workspace" },
  };
  const names = new TemporaryNames(store.instance);
  const clock = new ManualClock();
  const time = ServiceTime.resume(clock, store.time);
  const own = { store: store.workspaces, names, clock, time, logger: new MemoryLog() };
  const storage = workspaceStorage(settings, {
    ...{ names, logger: own.logger, instance: store.instance },
    volumes: undefined,
  });
  await storage.prepare();
  const mounts = new WorkspaceMounts({
    ...{ ...own, storage },
    assertTenantRoom: (owner, signal) => parts.quota.assertTenantRoom(owner, { signal }),
  });
  const world = newWorld();
  const { manager, monitor, events } = await newManager({}, world, mounts);
  const parts = createWorkspaces(settings, {
    ...{ ...own, storage, mounts, sandboxes: manager, monitor },
    ...(memory && { memory }),
    quotas: new TenantQuotas(own.clock, () => ({ workspaceBytes: quotas.tenant })),
  });
  await parts.workspaces.start();
  const close = async (): Promise<void> => {
    await parts.workspaces.stop({ timeoutMs: 60_000 });
    store.close();
  };
  return { ...parts, engine: world.engine, events, log: own.logger, close };
}
