import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { MemoryBudget } from "../../../src/base/memory-budget.ts";
import { workspaceBroken } from "../../../src/workspaces/workspace.ts";
import { makeTar } from "../../support/tar-builder.ts";
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
  const memory = new MemoryBudget(MIB);
  const { workspaces, close } = await openWorkspaces(directory, {}, memory);
  onTestFinished(close);
  const entries = Array.from({ length: 5_000 }, (_, index) => ({ name: String(index).padStart(100, "n") }));
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
  const { workspace } = await workspaces.import(NAME, Readable.from([makeTar([{ name: "file" }])]), options);
  expect(await readdir(workspace.path)).toEqual(["file"]);
});
