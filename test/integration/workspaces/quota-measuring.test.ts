import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { Store } from "../../../src/store.ts";
import { sharedOf } from "../../../src/workspaces/workspace.ts";
import { eventually } from "../../support/eventually.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { eventsOf, OWNER } from "../../unit/sandboxes/support.ts";
import { openWorkspaces } from "./support.ts";

const MIB = 1024 * 1024;

test("the watch finds a workspace that grew while nobody asked for its size, and reports it once", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-watch-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const name = { owner: OWNER, workspaceId: "grown" };
  const first = await openWorkspaces(directory, { workspace: MIB });
  const { workspace } = await first.workspaces.create(name);
  await writeFile(path.join(workspace.path, "file"), Buffer.alloc(3 * MIB, 1));
  await first.close();

  const second = await openWorkspaces(directory, { workspace: MIB });
  const signal = new AbortController().signal;
  const seen = await eventually(async () => {
    const view = await second.workspaces.get(name, { measure: false, signal });
    return view.sizeBytes !== undefined && view;
  });
  expect(seen.sizeBytes).toBeGreaterThan(3 * MIB - 1);
  await second.workspaces.get(name, { measure: true, signal });
  const told = second.log.lines.filter(({ message }) => message.includes("past its quota"));
  expect(told).toHaveLength(1);
  await expect(second.ensurer.ensure(name, {}, signal)).rejects.toMatchObject({ reason: "NO_SPACE" });
  // It stops at once, whatever the watch is measuring.
  await second.close();
});

test("a workspace that was deleted and created again is reported again when it exceeds its quota", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-watch-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { workspaces, ensurer, events, log, close } = await openWorkspaces(directory, { workspace: MIB });
  onTestFinished(close);
  const name = { owner: OWNER, workspaceId: "full" };
  const signal = new AbortController().signal;
  const reported = async (): Promise<string[]> => {
    const { workspace, sandbox } = await ensurer.ensure(name, {}, signal);
    const file = path.join(workspace.path, "file");
    await writeFile(file, Buffer.alloc(3 * MIB, 1));
    await workspaces.get(name, { measure: true, signal });
    await rm(file);
    await workspaces.get(name, { measure: true, signal });
    await writeFile(file, Buffer.alloc(3 * MIB, 1));
    await workspaces.get(name, { measure: true, signal });
    const types = (await eventsOf(events, sandbox?.sandboxId ?? "")).map(({ body }) => body.type);
    return types.filter((type) => type.startsWith("WORKSPACE"));
  };
  const each = ["WORKSPACE_OVER_QUOTA", "WORKSPACE_WITHIN_QUOTA", "WORKSPACE_OVER_QUOTA"];
  expect(await reported()).toEqual(each);
  await workspaces.cleanup(name, { force: true, graceMs: 0, requestId: "" });
  expect(await reported()).toEqual(each);
  expect(log.lines.filter(({ message }) => message.includes("past its quota"))).toHaveLength(4);
});

test("the watch finds a shared directory that grew, also one from an earlier version", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-watch-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const name = { owner: OWNER, workspaceId: "any" };
  const first = await openWorkspaces(directory);
  await first.workspaces.create(name);
  await writeFile(path.join(directory, "shared", "file"), Buffer.alloc(3 * MIB, 1));
  await first.close();
  const store = Store.open(directory);
  store.workspaces.remove(sharedOf(OWNER));
  store.close();

  const second = await openWorkspaces(directory, { shared: MIB });
  const signal = new AbortController().signal;
  await eventually(() => second.quota.shared.over > 0).catch(() => {});
  const { sizeBytes, over } = second.quota.shared;
  expect(over).toBe(1);
  expect(sizeBytes).toBeGreaterThan(3 * MIB - 1);
  const usage = await second.quota.sharedUsage(OWNER, { measure: false, signal });
  expect(usage).toMatchObject({ sizeBytes, quotaBytes: MIB });
  await expect(second.ensurer.ensure(name, {}, signal)).rejects.toMatchObject({ reason: "NO_SPACE" });
  await second.close();
});

test("the sizes of shared directories are known right after a restart, and those without a quota do not count", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-watch-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const signal = new AbortController().signal;
  const first = await openWorkspaces(directory, { shared: MIB });
  await first.workspaces.create({ owner: OWNER, workspaceId: "any" });
  await writeFile(path.join(directory, "shared", "file"), Buffer.alloc(3 * MIB, 1));
  await first.quota.sharedUsage(OWNER, { measure: true, signal });
  const { sizeBytes } = first.quota.shared;
  expect(sizeBytes).toBeGreaterThan(3 * MIB - 1);
  await first.close();

  const second = await openWorkspaces(directory, { shared: MIB });
  expect(second.quota.shared).toEqual({ sizeBytes, over: 1 });
  await second.close();

  // The watch measures it for the quota of its tenant.
  const third = await openWorkspaces(directory, { tenant: 64 * MIB });
  await third.quota.measure(sharedOf(OWNER), signal);
  expect(third.quota.ownerBytes(OWNER)).toBeGreaterThan(3 * MIB - 1);
  expect(third.quota.shared).toEqual({ sizeBytes: 0, over: 0 });
  await third.close();
});

test("each owner's shared directory has a quota of its own", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-watch-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const world = await openWorkspaces(directory, { shared: MIB });
  const signal = new AbortController().signal;
  const usage = (owner: string) => world.quota.sharedUsage(owner, { measure: true, signal });
  const full = { owner: "full", workspaceId: "same" };
  const other = { owner: "other", workspaceId: "same" };
  for (const name of [full, other]) {
    const { workspace } = await world.workspaces.create(name);
    const shared = path.join(path.dirname(workspace.path), "shared");
    if (name === full) await writeFile(path.join(shared, "file"), Buffer.alloc(3 * MIB, 1));
  }
  expect((await usage("full"))?.sizeBytes).toBeGreaterThan(3 * MIB - 1);
  expect((await usage("other"))?.sizeBytes).toBeLessThan(MIB);
  expect(world.quota.shared.over).toBe(1);
  await expect(world.ensurer.ensure(full, {}, signal)).rejects.toMatchObject({ reason: "NO_SPACE" });
  expect((await world.ensurer.ensure(other, {}, signal)).sandbox?.state).toBe("RUNNING");
  // A shared directory that does not exist is not measured.
  expect(await usage("nobody")).toMatchObject({ sizeBytes: undefined });
  await world.close();
});

test("imported files count once against their tenant's quota, also while the staging directory is removed", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-watch-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { workspaces, quota, close } = await openWorkspaces(directory, { tenant: 64 * MIB });
  const name = { owner: OWNER, workspaceId: "imported" };
  const files = Array.from({ length: 2_000 }, (_, i) => ({ name: `${i}`, content: Buffer.alloc(1024, 1) }));
  const chunks = Readable.from([makeTar(files)]);
  const measure = quota.measure.bind(quota);
  const seen: number[] = [];
  let ended = false;
  quota.measure = async (...request) => {
    const sizeBytes = await measure(...request);
    const look = (): void => {
      seen.push(quota.ownerBytes(OWNER));
      if (!ended) setImmediate(look);
    };
    setImmediate(look);
    return sizeBytes;
  };
  const signal = new AbortController().signal;
  const { workspace } = await workspaces.import(name, chunks, { replace: false, signal });
  ended = true;
  expect(seen.length).toBeGreaterThan(0);
  expect(Math.max(...seen)).toBe(workspace.sizeBytes);
  await close();
});
