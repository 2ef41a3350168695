import { expect, test } from "vitest";
import type { BerthError } from "../../../src/base/errors.ts";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import { TenantQuotas } from "../../../src/sandboxes/tenant-quotas.ts";
import { ServiceTime, TimeStore } from "../../../src/state/service-time.ts";
import { WorkspaceMounts } from "../../../src/workspaces/mounts.ts";
import { createWorkspaces } from "../../../src/workspaces/parts.ts";
import type { WorkspaceStorage } from "../../../src/workspaces/storage.ts";
import { WorkspaceStore } from "../../../src/workspaces/store.ts";
import { sharedOf } from "../../../src/workspaces/workspace.ts";
import { settled } from "../../support/manual-clock.ts";
import { memoryDatabase } from "../../support/memory-database.ts";
import { newManager } from "../sandboxes/support.ts";

const NAME = { owner: "me", workspaceId: "full" };
const never = new AbortController().signal;

/** A workspace that exceeds its own quota or that of its tenant, and takes a while to measure. */
async function fullWorkspace({ of, takesMs }: { of: "tenant" | "workspace"; takesMs: number }) {
  const { manager: sandboxes, monitor, clock, log } = await newManager();
  const database = memoryDatabase();
  const store = new WorkspaceStore(database);
  const disk = { sizeBytes: 100, measured: 0 };
  const storage = {
    sharing: false,
    measuresOften: false,
    quotaOf: () => ({ quotaBytes: of === "workspace" ? 50 : undefined, quotaEnforcement: "WATCHED" }),
    problemOf: async () => undefined,
    pathOf: () => "/path",
    mountOf: (_, { target, readOnly, giveToUser }) => ({
      ...{ kind: "host", hostPath: "/path", target, readOnly, giveToUser },
    }),
    measure: async () => {
      const { sizeBytes } = disk;
      disk.measured++;
      await new Promise<void>((resolve) => clock.setTimer(takesMs, resolve));
      return sizeBytes;
    },
  } as Partial<WorkspaceStorage> as WorkspaceStorage;
  const quotas = new TenantQuotas(clock, () => ({ workspaceBytes: of === "tenant" ? 50 : undefined }));
  const { quota, ensurer, workspaces } = createWorkspaces(
    { dockerRequired: false, defaults: { workingDir: "/workspace" } },
    {
      ...{ store, storage, sandboxes, monitor, clock, quotas, logger: log },
      mounts: new WorkspaceMounts({ store, storage, clock, assertTenantRoom: async () => {} }),
      names: new TemporaryNames("instance"),
      time: ServiceTime.resume(clock, new TimeStore(database)),
    },
  );
  store.insert(NAME, "ACTIVE", 0);
  store.setSize(NAME, disk.sizeBytes);
  const ask = (): Promise<string> =>
    quota.assertRoom(NAME).then(
      () => "admitted",
      ({ reason }: BerthError) => reason,
    );
  return { clock, disk, ask, ensurer, quota, store, workspaces };
}

type World = Awaited<ReturnType<typeof fullWorkspace>>;

test.each([
  ["short ones of a tenant", { of: "tenant", takesMs: 100, perMinute: 60 }],
  ["short ones of a workspace", { of: "workspace", takesMs: 100, perMinute: 60 }],
  ["long ones", { of: "tenant", takesMs: 1_000, perMinute: 10 }],
  ["very long ones", { of: "tenant", takesMs: 6_000, perMinute: 5 }],
] as const)(
  "callers who repeat a refused call cause few measurements: %s",
  async (_, { of, takesMs, perMinute }) => {
    const { clock, disk, ask } = await fullWorkspace({ of, takesMs });
    const ended = new AbortController();
    const callers = [1, 2, 3].map(async () => {
      while (!ended.signal.aborted) await ask();
    });
    await clock.advance(60_000);
    expect(disk.measured).toBeGreaterThan(0);
    expect(disk.measured).toBeLessThanOrEqual(perMinute + 1);
    ended.abort();
    await clock.advance(60_000);
    await Promise.all(callers);
  },
);

test("a caller who deletes files after a refusal is not refused again, and waits seconds at most", async () => {
  const { clock, disk, ask } = await fullWorkspace({ of: "tenant", takesMs: 1_000 });
  const first = ask();
  await clock.advance(1_000);
  expect(await first).toBe("TENANT_QUOTA");
  disk.sizeBytes = 10;
  const second = ask();
  await clock.advance(6_000);
  expect(await second).toBe("admitted");
  // It is known now.
  expect(await ask()).toBe("admitted");
  expect(disk.measured).toBe(2);
});

test("calls that wait for their workspace's lock while it is measured are refused without another measurement", async () => {
  const { clock, disk, ensurer } = await fullWorkspace({ of: "workspace", takesMs: 1_000 });
  const ends: string[] = [];
  const ensure = () =>
    ensurer.ensure(NAME, {}, never).catch(({ reason }: BerthError) => void ends.push(reason));
  const calls = [ensure(), ensure(), ensure()];
  await clock.advance(1_000);
  await settled();
  expect(ends).toEqual(["NO_SPACE", "NO_SPACE", "NO_SPACE"]);
  await Promise.all(calls);
  expect(disk.measured).toBe(1);
});

test.each([
  ["a workspace", ({ workspaces }: World) => workspaces.get(NAME, { measure: true, signal: never })],
  [
    "a shared directory",
    ({ quota }: World) => quota.sharedUsage(NAME.owner, { measure: true, signal: never }),
  ],
])("callers who keep asking for the size of %s cause few measurements", async (_, ask) => {
  const world = await fullWorkspace({ of: "workspace", takesMs: 100 });
  const { clock, disk, store } = world;
  store.insert(sharedOf(NAME.owner), "ACTIVE", 0);
  const ended = new AbortController();
  const callers = Array.from({ length: 10 }, async () => {
    while (!ended.signal.aborted) await ask(world);
  });
  await clock.advance(60_000);
  // Nine tenths of the time it rests.
  expect(disk.measured).toBeGreaterThan(10);
  expect(disk.measured).toBeLessThanOrEqual(61);
  ended.abort();
  await clock.advance(60_000);
  await Promise.all(callers);
});

test("a caller who asks for a size gets one that was measured after that", async () => {
  const { clock, disk, workspaces } = await fullWorkspace({ of: "workspace", takesMs: 100 });
  const ask = () => workspaces.get(NAME, { measure: true, signal: never });
  const first = ask();
  await clock.advance(100);
  expect((await first).sizeBytes).toBe(100);
  disk.sizeBytes = 10;
  const second = ask();
  await clock.advance(1_000);
  expect((await second).sizeBytes).toBe(10);
});

test("a measurement during which an import replaces the content counts as one of the new content", async () => {
  const { clock, disk, quota, store } = await fullWorkspace({ of: "workspace", takesMs: 100 });
  const measured = quota.measure(NAME);
  disk.sizeBytes = 10;
  store.setTree(NAME, 1);
  store.setSize(NAME, 10);
  await clock.advance(100);
  await settled();
  await clock.advance(100);
  expect(await measured).toBe(10);
  expect(store.find(NAME)?.sizeBytes).toBe(10);
});
