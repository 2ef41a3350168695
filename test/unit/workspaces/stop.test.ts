import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import { TenantQuotas } from "../../../src/sandboxes/tenant-quotas.ts";
import { ServiceTime, TimeStore } from "../../../src/state/service-time.ts";
import { WorkspaceMounts } from "../../../src/workspaces/mounts.ts";
import { createWorkspaces } from "../../../src/workspaces/parts.ts";
import type { WorkspaceStorage } from "../../../src/workspaces/storage.ts";
import { WorkspaceStore } from "../../../src/workspaces/store.ts";
import { memoryDatabase } from "../../support/memory-database.ts";
import { newManager } from "../sandboxes/support.ts";

const STOP_TIMEOUT_MS = 1_000;

/** Workspaces of which an earlier run was deleting one. The removal of its directory ends when the test says so. */
async function interrupted() {
  const { manager: sandboxes, monitor, clock, log } = await newManager();
  const database = memoryDatabase();
  const store = new WorkspaceStore(database);
  const removal = Promise.withResolvers<void>();
  const used: string[] = [];
  const storage = {
    sharing: false,
    measuresOften: true,
    discard: () => removal.promise,
    measure: async () => used.push("measured"),
    sweep: async () => used.push("swept"),
  } as Partial<WorkspaceStorage> as WorkspaceStorage;
  const { workspaces } = createWorkspaces(
    { dockerRequired: false, defaults: { workingDir: "/workspace" } },
    {
      ...{ store, storage, sandboxes, monitor, clock, logger: log },
      mounts: new WorkspaceMounts({ store, storage, clock, assertTenantRoom: async () => {} }),
      names: new TemporaryNames("instance"),
      quotas: new TenantQuotas(clock, () => ({})),
      time: ServiceTime.resume(clock, new TimeStore(database)),
    },
  );
  store.insert({ owner: "me", workspaceId: "half gone" }, "DELETING", 0);
  store.insert({ owner: "me", workspaceId: "whole" }, "ACTIVE", 0);
  const recovered = workspaces.start();
  let isStopped = false;
  const stop = async (): Promise<void> => {
    await workspaces.stop({ timeoutMs: STOP_TIMEOUT_MS });
    isStopped = true;
  };
  /** Whether the stop has ended, once everything that is possible by now has happened. */
  const hasStopped = async (): Promise<boolean> => {
    await setImmediate();
    return isStopped;
  };
  return {
    ...{ clock, log, removal, recovered, store, used, stop, hasStopped },
    close: () => database.close(),
  };
}

test("a stop waits for a deletion that an earlier run left, and starts nothing after it", async () => {
  const { removal, store, used, stop, hasStopped, close } = await interrupted();
  const stopping = stop();
  expect(await hasStopped()).toBe(false);
  removal.resolve();
  await stopping;
  expect([...store.all()].map(({ workspaceId }) => workspaceId)).toEqual(["whole"]);
  expect(used).toEqual([]);
  close();
});

test("a stop waits only up to its limit for a deletion that an earlier run left", async () => {
  const { clock, removal, recovered, used, stop, hasStopped, close } = await interrupted();
  void stop();
  await clock.advance(STOP_TIMEOUT_MS - 1);
  expect(await hasStopped()).toBe(false);
  await clock.advance(1);
  expect(await hasStopped()).toBe(true);
  // What continues must not need the state, which the service closes then.
  close();
  removal.resolve();
  await recovered;
  expect(used).toEqual([]);
});

test("a database that cannot be read ends neither the watch of quotas nor the service", async () => {
  const { log, removal, recovered, used, stop, close } = await interrupted();
  close();
  removal.resolve();
  await recovered;
  await expect(stop()).resolves.toBeUndefined();
  expect(used).toEqual([]);
  const messages = log.lines.map(({ message }) => message);
  expect(messages).toContain("quotas are not watched: the next round tries again");
  expect(messages).toContain("workspaces are not swept: the next start tries again");
});
