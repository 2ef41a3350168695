import { expect, test } from "vitest";
import { TemporaryNames } from "../../../src/files/temporary-names.ts";
import { WorkspaceDiff } from "../../../src/workspaces/diff.ts";
import type { WorkspaceStorage } from "../../../src/workspaces/storage.ts";
import { Transfers } from "../../../src/workspaces/transfers.ts";
import type { Workspaces } from "../../../src/workspaces/workspaces.ts";
import { makeTar } from "../../support/tar-builder.ts";

const OWNER = "me";

test("a change does not wait for the next one, however long that takes", async () => {
  const ended: string[] = [];
  const storage = {
    async *sorted({ workspaceId }: { workspaceId: string }, signal: AbortSignal) {
      try {
        yield makeTar([{ name: `./${workspaceId}` }, { name: "./same" }], Buffer.alloc(0));
        await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      } finally {
        ended.push(workspaceId);
      }
    },
  } as unknown as WorkspaceStorage;
  const workspaces = {
    findWhole: async (name: object) => name,
    assertSame: () => {},
  } as unknown as Workspaces;
  const names = new TemporaryNames("instance");
  const diffs = new WorkspaceDiff({ workspaces, storage, transfers: new Transfers(), names });
  const name = (workspaceId: string) => ({ owner: OWNER, workspaceId });
  const leave = new AbortController();
  const items = diffs.diff(name("a"), name("b"), leave.signal);
  const stopped = items.next().finally(() => leave.abort());
  const first = await Promise.race([stopped, new Promise((resolve) => setTimeout(resolve, 10_000).unref())]);
  expect(first).toMatchObject({
    value: { type: "changes", changes: [{ type: "REMOVED" }, { type: "ADDED" }] },
  });
  await items.return(undefined);
  await expect.poll(() => ended.sort()).toEqual(["a", "b"]);
});
