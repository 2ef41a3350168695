import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { BerthError } from "../../../src/base/errors.ts";
import { makeTar } from "../../support/tar-builder.ts";
import { OWNER } from "../../unit/sandboxes/support.ts";
import { openWorkspaces } from "./support.ts";

const { signal } = new AbortController();
const REPLACEMENTS = 25;

let directory = "";
let service: Awaited<ReturnType<typeof openWorkspaces>>;
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), "berth-replacing-"));
  service = await openWorkspaces(directory);
});
afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true, force: true });
});

test("a workspace that is being replaced is in use, and never broken, although its directory is missing for a moment", async () => {
  const { workspaces, forks, diffs } = service;
  const [name, other] = ["replaced", "other"].map((workspaceId) => ({ owner: OWNER, workspaceId })) as [
    { owner: string; workspaceId: string },
    { owner: string; workspaceId: string },
  ];
  async function* tar() {
    yield makeTar([{ name: "file", content: "content" }]);
  }
  for (const each of [name, other]) await workspaces.import(each, tar(), { replace: false, signal });
  const all = async (items: AsyncIterable<unknown>): Promise<void> => {
    for await (const _ of items);
  };
  // Each is removed at once: the more workspaces there are, the longer a list of them takes.
  const fork = async (): Promise<void> => {
    const copy = { owner: OWNER, workspaceId: `fork-${Math.random()}` };
    await forks.fork(name, copy, { signal });
    await workspaces.cleanup(copy, { force: true, graceMs: 0, requestId: "" });
  };
  const reads: readonly (() => Promise<unknown>)[] = [
    () => all(workspaces.export(name, signal)),
    () => all(diffs.diff(other, name, signal)),
    () => workspaces.get(name, { measure: true, signal }),
    () => workspaces.get(name, { measure: false, signal }),
    fork,
    async () => expect((await workspaces.list(OWNER, "", 1_000)).broken).toEqual([]),
  ];
  let isOver = false;
  // Also if it fails: what reads on would use up the memory of the tests that follow.
  onTestFinished(() => {
    isOver = true;
  });
  const failures: unknown[] = [];
  const readers = reads.map(async (read) => {
    while (!isOver) {
      await read().catch((error: unknown) => {
        if (!(error instanceof BerthError && error.reason === "WORKSPACE_IN_USE")) failures.push(error);
      });
    }
  });
  for (let count = 0; count < REPLACEMENTS; count++)
    await workspaces.import(name, tar(), { replace: true, signal });
  isOver = true;
  await Promise.all(readers);
  expect(failures).toEqual([]);
});
