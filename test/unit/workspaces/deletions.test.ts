import { expect, test } from "vitest";
import { ServiceTime, TimeStore } from "../../../src/state/service-time.ts";
import type { WorkspaceMounts } from "../../../src/workspaces/mounts.ts";
import type { WorkspaceSandboxes } from "../../../src/workspaces/sandboxes.ts";
import type { WorkspaceStorage } from "../../../src/workspaces/storage.ts";
import { WorkspaceStore } from "../../../src/workspaces/store.ts";
import { Workspaces } from "../../../src/workspaces/workspaces.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { memoryDatabase } from "../../support/memory-database.ts";

const HOUR_MS = 3600 * 1000;
const name = { owner: "me", workspaceId: "job" };
const retry = { requestId: "again", graceMs: 0 };

test.each([
  ["back by 48 hours", -48],
  ["forward by 48 hours", 48],
])("a deletion is answered again for a day with the wall clock set %s", async (_, hours) => {
  const database = memoryDatabase();
  const clock = new ManualClock();
  const time = ServiceTime.resume(clock, new TimeStore(database));
  const store = new WorkspaceStore(database);
  const workspaces = new Workspaces({
    ...{ store, clock, time },
    // Neither files nor sandboxes nor quotas matter here.
    storage: { discard: async () => {} } as Partial<WorkspaceStorage> as WorkspaceStorage,
    users: { removeUsers: async () => {} } as Partial<WorkspaceSandboxes> as WorkspaceSandboxes,
    mounts: {} as WorkspaceMounts,
    quota: { forget() {} },
  });
  /** The answer to a retry. */
  const answers = () => workspaces.takeFinishedDeletion(name, retry.requestId);
  const deleteOther = () =>
    workspaces.delete(store.insert({ ...name, workspaceId: "other" }, "ACTIVE", 0), retry);
  try {
    // Service time has fractions of a millisecond.
    await clock.advance(0.5);
    await workspaces.delete(store.insert(name, "ACTIVE", 0), retry);
    clock.setWall(hours * HOUR_MS);
    await clock.advance(23 * HOUR_MS);
    await deleteOther();
    expect(answers()).toBe(0);
    await clock.advance(2 * HOUR_MS);
    expect(answers()).toBeUndefined();
    await deleteOther();
    expect(store.deletion(name)).toBeUndefined();
  } finally {
    database.close();
  }
});
