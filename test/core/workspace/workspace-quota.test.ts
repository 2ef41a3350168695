import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import { OWNER } from "../support.ts";
import { openWorkspaces } from "./support.ts";

const MIB = 1024 * 1024;

test("the watch finds a workspace that grew while nobody asked for its size, and says so once", async () => {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-watch-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const name = { owner: OWNER, workspaceId: "grown" };
  const first = await openWorkspaces(directory, MIB);
  const { workspace } = await first.workspaces.create(name);
  await writeFile(path.join(workspace.path, "file"), Buffer.alloc(3 * MIB, 1));
  await first.close();

  const second = await openWorkspaces(directory, MIB);
  const signal = new AbortController().signal;
  const seen = await eventually(
    async () => {
      const view = await second.workspaces.get(name, { measure: false, signal });
      return view.sizeBytes !== undefined && view;
    },
    { timeoutMs: 20_000 },
  );
  expect(seen.sizeBytes).toBeGreaterThan(3 * MIB - 1);
  await second.workspaces.get(name, { measure: true, signal });
  const told = second.log.lines.filter(({ message }) => message.includes("past its quota"));
  expect(told).toHaveLength(1);
  await expect(second.ensurer.ensure(name, {}, signal)).rejects.toMatchObject({ reason: "NO_SPACE" });
  // Whatever the watch measures meanwhile, it ends at once.
  await second.close();
});
