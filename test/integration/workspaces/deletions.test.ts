import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { repeatableRequest } from "../../support/repeatable-request.ts";
import { OWNER } from "../../unit/sandboxes/support.ts";
import { openWorkspaces } from "./support.ts";

const NAME = { owner: OWNER, workspaceId: "job" };

/** Workspaces in a directory that is removed after the test. */
async function openEmpty() {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-deletions-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const service = await openWorkspaces(directory);
  onTestFinished(service.close);
  return service;
}

test("a reference that is added or removed again, because the answer was lost, undoes no later change", async () => {
  const { workspaces } = await openEmpty();
  const other = { owner: OWNER, workspaceId: "other" };
  await workspaces.addReference(other, "trace");
  const [add, remove] = [repeatableRequest(), repeatableRequest()];
  const added = async () => (await workspaces.addReference(NAME, "trace", add())).previousWorkspaceId;
  expect(await added()).toBe("other");
  await workspaces.removeReference(NAME, "trace", remove());
  await workspaces.addReference(other, "trace");
  expect(await added()).toBe("other");
  expect(workspaces.references(other)).toEqual(["trace"]);
  await workspaces.addReference(NAME, "trace");
  await workspaces.removeReference(NAME, "trace", remove());
  expect(workspaces.references(NAME)).toEqual(["trace"]);
});

test("a cleanup that is repeated, because its answer was lost, does not delete what was created since", async () => {
  const { workspaces } = await openEmpty();
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
