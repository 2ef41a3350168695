import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { MemoryBudget } from "../../../src/base/memory-budget.ts";
import { workspaceBroken } from "../../../src/workspaces/workspace.ts";
import { makeTar, pax } from "../../support/tar-builder.ts";
import { OWNER } from "../../unit/sandboxes/support.ts";
import { openWorkspaces } from "./support.ts";

const MIB = 1024 * 1024;
const NAME = { owner: OWNER, workspaceId: "imported" };
const never = new AbortController().signal;

async function newDirectory(): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-imports-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

test("imports gather no more names together than there is memory for, and give it back", async () => {
  const directory = await newDirectory();
  const memory = new MemoryBudget(MIB / 4);
  const { workspaces, close } = await openWorkspaces(directory, {}, memory);
  onTestFinished(close);
  const entries = Array.from({ length: 1_500 }, (_, index) => ({ name: String(index).padStart(100, "n") }));
  const chunks = () => Readable.from([makeTar(entries)]);
  const { entryCount } = await workspaces.import(NAME, Readable.from([makeTar(entries.slice(0, 100))]), {
    ...{ replace: false, signal: never },
  });
  expect(entryCount).toBe(100);
  await expect(workspaces.import(NAME, chunks(), { replace: false, signal: never })).rejects.toMatchObject({
    reason: "TOO_MANY_OPERATIONS",
  });
  expect(memory.of(OWNER)).toBe(0);
  expect(await readdir(path.join(directory, "workspaces", ".staging"))).toEqual([]);
});

test("what a replacement could not remove is removed with its workspace, and does not come back", async () => {
  const directory = await newDirectory();
  const first = await openWorkspaces(directory);
  const { workspace } = await first.workspaces.create(NAME);
  const root = path.dirname(workspace.path);
  const old = path.join(root, `.old-${path.basename(workspace.path)}`);
  await mkdir(old);
  await writeFile(path.join(old, "file"), "deleted");
  await first.workspaces.cleanup(NAME, { force: true, graceMs: 0, requestId: "" });
  await first.close();

  const second = await openWorkspaces(directory);
  onTestFinished(second.close);
  expect((await readdir(root)).filter((entry) => entry.includes(path.basename(workspace.path)))).toEqual([]);
  expect(await second.workspaces.create(NAME)).toMatchObject({ created: true });
});

test("an import whose files are in place succeeds, whether the workspace can be measured or not", async () => {
  const directory = await newDirectory();
  const { workspaces, quota, close } = await openWorkspaces(directory);
  onTestFinished(close);
  quota.measure = () => Promise.reject(workspaceBroken(NAME, "its files belong to another user."));
  const options = { replace: false, signal: never };
  const tar = Readable.from([makeTar([{ name: "file" }])]);
  await expect(workspaces.import(NAME, tar, options)).resolves.toMatchObject({ entryCount: 1 });
  const { path: place } = await workspaces.get(NAME, { measure: false, signal: never });
  expect(await readdir(place)).toEqual(["file"]);
});

/** A tar that breaks off once \`then\` has settled. */
async function* broken(then: () => Promise<unknown>): AsyncGenerator<Buffer> {
  yield makeTar([{ name: "file" }], Buffer.alloc(0));
  await then();
  throw new BerthError("CANCELED", "The caller has left.");
}

test("a failed import leaves no workspace, unless somebody else has created it meanwhile", async () => {
  const directory = await newDirectory();
  const { workspaces, close } = await openWorkspaces(directory);
  onTestFinished(close);
  const options = { replace: false, signal: never };
  const get = () => workspaces.get(NAME, { measure: false, signal: never });
  const during = async () => {
    await expect(get()).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });
    expect((await workspaces.list(OWNER, "", 10)).broken).toEqual([]);
  };
  await expect(workspaces.import(NAME, broken(during), options)).rejects.toMatchObject({
    reason: "CANCELED",
  });
  await expect(get()).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });
  expect((await workspaces.list(OWNER, "", 10)).broken).toEqual([]);

  const created = () => workspaces.create(NAME);
  await expect(workspaces.import(NAME, broken(created), options)).rejects.toMatchObject({
    reason: "CANCELED",
  });
  expect(await readdir((await get()).path)).toEqual([]);
  await expect(workspaces.import(NAME, broken(get), options)).rejects.toMatchObject({ reason: "CANCELED" });
  expect(await readdir((await get()).path)).toEqual([]);
});

test("of two imports into a new workspace, one succeeds whatever the other does", async () => {
  const directory = await newDirectory();
  const { workspaces, close } = await openWorkspaces(directory);
  onTestFinished(close);
  const options = { replace: false, signal: never };
  const tar = () => Readable.from([makeTar([{ name: "other" }])]);
  const other = () => workspaces.import(NAME, tar(), options);
  await expect(workspaces.import(NAME, broken(other), options)).rejects.toMatchObject({ reason: "CANCELED" });
  const { path: place } = await workspaces.get(NAME, { measure: false, signal: never });
  expect(await readdir(place)).toEqual(["other"]);
});

test("what a failed import could not remove is removed before its workspace is created again", async () => {
  const directory = await newDirectory();
  const { workspaces, forks, close, log } = await openWorkspaces(directory);
  onTestFinished(close);
  const options = { replace: false, signal: never };
  const hash = createHash("sha256").update(NAME.workspaceId).digest("hex");
  const trash = path.join(directory, "workspaces", ".trash");
  const fail = async () => {
    const obstructed = async () => {
      // As if a part of the files was in place.
      await writeFile(path.join(directory, "workspaces", hash, "part"), "");
      await rm(trash, { recursive: true });
      await writeFile(trash, "");
    };
    const failed = workspaces.import(NAME, broken(obstructed), options);
    await expect(failed).rejects.toMatchObject({ reason: "CANCELED" });
    await rm(trash);
    await mkdir(trash);
  };
  const content = async () => readdir((await workspaces.get(NAME, { measure: false, signal: never })).path);
  await fail();
  expect(log.lines.map(({ message }) => message)).toContain(
    "a workspace that an import created could not be removed",
  );
  expect(await workspaces.create(NAME)).toMatchObject({ created: true });
  expect(await content()).toEqual([]);

  await workspaces.cleanup(NAME, { force: true, graceMs: 0, requestId: "" });
  await fail();
  await workspaces.import(NAME, Readable.from([makeTar([{ name: "whole" }])]), options);
  expect(await content()).toEqual(["whole"]);

  await workspaces.cleanup(NAME, { force: true, graceMs: 0, requestId: "" });
  await fail();
  const source = { owner: OWNER, workspaceId: "source" };
  await workspaces.create(source);
  await forks.fork(source, NAME, { signal: never });
  expect(await content()).toEqual([]);
});

test("an import that the end of the service interrupts leaves no workspace, and no part of its files", async () => {
  const directory = await newDirectory();
  const first = await openWorkspaces(directory);
  const options = { replace: false, signal: never };
  const hash = createHash("sha256").update(NAME.workspaceId).digest("hex");
  const killed = async () => {
    // As if a part of the files was in place.
    await writeFile(path.join(directory, "workspaces", hash, "part"), "");
    await first.close();
  };
  await expect(first.workspaces.import(NAME, broken(killed), options)).rejects.toMatchObject({
    reason: "CANCELED",
  });

  const second = await openWorkspaces(directory);
  onTestFinished(second.close);
  const get = () => second.workspaces.get(NAME, { measure: false, signal: never });
  await expect(get()).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });
  expect((await second.workspaces.list(OWNER, "", 10)).broken).toEqual([]);
  await second.workspaces.import(NAME, Readable.from([makeTar([{ name: "whole" }])]), options);
  expect(await readdir((await get()).path)).toEqual(["whole"]);
});

test("an import merges 100 levels of directories; one level more is refused, and nothing is moved", async () => {
  const directory = await newDirectory();
  const { workspaces, close } = await openWorkspaces(directory);
  onTestFinished(close);
  const options = { replace: false, signal: never };
  const nested = (levels: number, name: string) =>
    makeTar([{ name }, pax({ path: `${"d/".repeat(levels)}${name}` }), { name: "long" }]);
  const importOf = (...tar: Parameters<typeof nested>) =>
    workspaces.import(NAME, Readable.from([nested(...tar)]), options);
  const { workspace } = await importOf(101, "first");
  await importOf(100, "second");
  await expect(importOf(101, "third")).rejects.toMatchObject({
    reason: "UNSUPPORTED",
    message: expect.stringContaining("100 levels"),
  });
  expect((await readdir(workspace.path)).sort()).toEqual(["d", "first", "second"]);
  expect(await readdir(path.join(workspace.path, "d/".repeat(100)))).toEqual(["d", "second"]);
  expect(await readdir(path.join(workspace.path, "d/".repeat(101)))).toEqual(["first"]);
});
