import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { OWNER } from "../../unit/sandboxes/support.ts";
import { openWorkspaces } from "./support.ts";

const NAME = { owner: OWNER, workspaceId: "job" };

test("a cleanup that is repeated, because its answer was lost, does not delete what was created since", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-deletions-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { workspaces, close } = await openWorkspaces(directory);
  onTestFinished(close);
  const cleanup = (requestId: string) => workspaces.cleanup(NAME, { force: true, graceMs: 0, requestId });
  const traces = () => workspaces.references(NAME);
  await workspaces.addReference(NAME, "first");
  await workspaces.addReference(NAME, "second");
  expect(await cleanup("one")).toEqual({ workspace: undefined, clearedRefs: 2 });

  await workspaces.addReference(NAME, "later");
  expect(await cleanup("one")).toEqual({ workspace: undefined, clearedRefs: 2 });
  expect(traces()).toEqual(["later"]);
  expect(await cleanup("")).toEqual({ workspace: undefined, clearedRefs: 1 });
  await workspaces.addReference(NAME, "last");
  expect(await cleanup("two")).toEqual({ workspace: undefined, clearedRefs: 1 });
  expect(traces()).toEqual([]);
});
