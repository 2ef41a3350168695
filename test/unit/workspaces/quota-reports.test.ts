import { expect, test } from "vitest";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import { TenantQuotas } from "../../../src/sandboxes/tenant-quotas.ts";
import { ServiceTime, TimeStore } from "../../../src/state/service-time.ts";
import { WorkspaceMounts } from "../../../src/workspaces/mounts.ts";
import { createWorkspaces } from "../../../src/workspaces/parts.ts";
import type { WorkspaceStorage } from "../../../src/workspaces/storage.ts";
import { WorkspaceStore } from "../../../src/workspaces/store.ts";
import { sharedOf } from "../../../src/workspaces/workspace.ts";
import { memoryDatabase } from "../../support/memory-database.ts";
import { eventsOf, newManager, newWorld, OWNER } from "../sandboxes/support.ts";

const NAME = { owner: OWNER, workspaceId: "full" };
const never = new AbortController().signal;

/** A sandbox that outlives the service, with a workspace and the shared directory, which have a quota of 50 bytes. */
async function mountedWorkspace() {
  const world = newWorld();
  const { clock } = world;
  const database = memoryDatabase();
  const store = new WorkspaceStore(database);
  const disk = { sizeBytes: 0 };
  const storage = {
    quotaOf: () => ({ quotaBytes: 50, quotaEnforcement: "WATCHED" }),
    problemOf: async () => undefined,
    mountOf: (_, at) => ({ kind: "host", hostPath: "/path", ...at }),
    measure: async () => disk.sizeBytes,
  } as Partial<WorkspaceStorage> as WorkspaceStorage;
  const mounts = new WorkspaceMounts({ store, storage, clock, assertTenantRoom: async () => {} });
  const { manager: sandboxes, monitor, events, log } = await newManager({}, world, mounts);
  for (const name of [NAME, sharedOf(OWNER)]) store.insert(name, "ACTIVE", 0);
  const mount = { source: { kind: "workspace", ...NAME }, target: "/workspace", readOnly: false } as const;
  const { sandboxId } = await sandboxes.create(OWNER, { mounts: [mount] }, { signal: never });
  const startService = () =>
    createWorkspaces(
      { dockerRequired: false, defaults: { workingDir: "/workspace" } },
      {
        ...{ store, storage, mounts, sandboxes, monitor, clock, logger: log },
        quotas: new TenantQuotas(clock, () => ({})),
        names: new TemporaryNames("instance"),
        time: ServiceTime.resume(clock, new TimeStore(database)),
      },
    );
  const reports = async (): Promise<string[]> => {
    const types = (await eventsOf(events, sandboxId)).map(({ body }) => body.type);
    return types.filter((type) => type.endsWith("_QUOTA"));
  };
  return { disk, startService, reports };
}

test.each([
  ["a workspace", NAME, "WORKSPACE"],
  ["a shared directory", sharedOf(OWNER), "SHARED"],
] as const)(
  "%s over its quota that got room around a restart is reported as within it, once",
  async (_, name, kind) => {
    const { disk, startService, reports } = await mountedWorkspace();
    disk.sizeBytes = 100;
    await startService().quota.measure(name);
    disk.sizeBytes = 10;
    const { quota } = startService();
    await quota.measure(name);
    await quota.measure(name);
    expect(await reports()).toEqual([`${kind}_OVER_QUOTA`, `${kind}_WITHIN_QUOTA`]);
  },
);
