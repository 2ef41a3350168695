import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { TemporaryNames } from "../../../../src/files/temporary-names.ts";
import { WorkspaceDirectories } from "../../../../src/workspaces/host/directories.ts";
import type { ProjectQuota } from "../../../../src/workspaces/host/project-quota.ts";
import { MemoryLog } from "../../../support/memory-log.ts";
import { makeTar } from "../../../support/tar-builder.ts";

const MIB = 1024 * 1024;
const PLACE = { owner: "default", workspaceId: "w", number: 7, tree: 0 };
const signal = new AbortController().signal;

/** Directories on a file system that enforces quotas, as far as it shows, in one run of the service after another. */
async function newDisk() {
  const directory = await mkdtemp(path.join(tmpdir(), "berth-limits-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const limits = new Map<number, number>();
  const quota = {
    assign: async () => {},
    limit: async (number: number, bytes: number) => void limits.set(number, bytes),
  } as Partial<ProjectQuota> as ProjectQuota;
  const start = async (quotaBytes: number): Promise<WorkspaceDirectories> => {
    const directories = new WorkspaceDirectories(
      {
        root: path.join(directory, "workspaces"),
        sharedRoot: path.join(directory, "shared"),
        dataDir: path.join(directory, "data"),
        quotaBytes,
        sharedQuotaBytes: undefined,
      },
      new TemporaryNames("instance"),
      new MemoryLog(),
      async () => quota,
    );
    await directories.prepare();
    return directories;
  };
  const stage = (directories: WorkspaceDirectories) =>
    directories.stage(PLACE, Readable.from([makeTar([{ name: "file" }])]), {
      admit: async () => {},
      take: () => true,
      signal,
    });
  return { directory, limits, start, stage };
}

test("after the start, a quota that was changed applies to the workspaces that exist", async () => {
  const { limits, start } = await newDisk();
  await (await start(MIB)).make(PLACE);
  expect(limits.get(PLACE.number)).toBe(MIB);
  const next = await start(2 * MIB);
  await next.sweep(PLACE, () => false, signal);
  expect(limits.get(PLACE.number)).toBe(2 * MIB);
});

test("after the start, a workspace no longer has the room of an import that the end of the service interrupted", async () => {
  const { limits, start, stage } = await newDisk();
  const first = await start(MIB);
  await first.make(PLACE);
  await stage(first);
  expect(limits.get(PLACE.number)).toBe(2 * MIB);
  const next = await start(MIB);
  // An import may have started since.
  const { discard } = await stage(next);
  await next.sweep(PLACE, () => false, signal);
  expect(limits.get(PLACE.number)).toBe(2 * MIB);
  await discard();
  await next.sweep(PLACE, () => false, signal);
  expect(limits.get(PLACE.number)).toBe(MIB);
});

test("an import gives back its room, even if its files cannot be removed", async () => {
  const { directory, limits, start, stage } = await newDisk();
  const directories = await start(MIB);
  await directories.make(PLACE);
  const { discard } = await stage(directories);
  const staging = path.join(directory, "workspaces", ".staging");
  await rm(staging, { recursive: true });
  await writeFile(staging, "in the way");
  await expect(discard()).rejects.toThrow();
  expect(limits.get(PLACE.number)).toBe(MIB);
});
