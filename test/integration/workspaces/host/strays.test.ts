import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setImmediate } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { TemporaryNames } from "../../../../src/files/temporary-names.ts";
import { WorkspaceDirectories } from "../../../../src/workspaces/host/directories.ts";
import { WorkspaceStore } from "../../../../src/workspaces/store.ts";
import { memoryDatabase } from "../../../support/memory-database.ts";
import { MemoryLog } from "../../../support/memory-log.ts";

const MANY = 50_000;
const OWNER = "default";

async function newDirectories() {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-strays-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const root = path.join(directory, "workspaces");
  const places = { root, sharedRoot: path.join(directory, "shared"), dataDir: path.join(directory, "data") };
  const quotas = { quotaBytes: undefined, sharedQuotaBytes: undefined };
  const directories = new WorkspaceDirectories(
    { ...places, ...quotas },
    new TemporaryNames("i"),
    new MemoryLog(),
  );
  await directories.prepare();
  const make = (workspaceId: string) => directories.make({ owner: OWNER, workspaceId, number: 1, tree: 0 });
  return { root, directories, make };
}

test("the search for strays among many workspaces does not block the event loop", async () => {
  const { root, directories } = await newDirectories();
  await mkdir(path.join(root, "stray"));
  let [turns, turnsBefore, isOver] = [0, 0, false];
  const count = async (): Promise<void> => {
    for (; !isOver; turns++) await setImmediate();
  };
  const counting = count();
  function* ids(): Generator<string> {
    turnsBefore = turns;
    for (let index = 0; index < MANY; index++) yield `workspace-${index}`;
  }
  const strays = await directories.strays(OWNER, ids(), 10);
  isOver = true;
  await counting;
  expect(strays.map((stray) => stray.path)).toEqual([path.join(root, "stray")]);
  // A turn contains 5 ms of it.
  expect(turns - turnsBefore).toBeGreaterThan(4);
});

test("a workspace that is created during the search is no stray", async () => {
  const { directories, make } = await newDirectories();
  const store = new WorkspaceStore(memoryDatabase());
  await make("comes");
  const searching = directories.strays(OWNER, store.ids(OWNER), 10);
  store.insert({ owner: OWNER, workspaceId: "comes" }, "CREATING", 0);
  expect(await searching).toEqual([]);
});
