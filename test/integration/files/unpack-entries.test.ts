import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Readable } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { fromText } from "../../../src/base/byte-string.ts";
import { finishDirectories, unpackEntries } from "../../../src/files/unpack-entries.ts";
import { makeTar } from "../../support/tar-builder.ts";

test("of a directory that a tar has twice, or after its content, the last mode and time count", async () => {
  const root = await mkdtemp(path.join(tmpdir(), "berth-unpack-"));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const tar = makeTar([
    { name: "twice/", type: "5", mode: 0o555, mtime: 1_000 },
    { name: "twice/file", mtime: 2_000 },
    { name: "twice/", type: "5", mode: 0o750, mtime: 3_000 },
    { name: "late/file", mtime: 4_000 },
    { name: "late/", type: "5", mode: 0o550, mtime: 5_000 },
  ]);
  const { directories } = await unpackEntries(fromText(root), Readable.from([tar]), { exactModes: true });
  await finishDirectories(directories, fromText(root));
  const found = ["twice", "late"].map(async (name) => {
    const { mode, mtimeMs } = await stat(path.join(root, name));
    return [mode & 0o7777, mtimeMs / 1000];
  });
  expect(await Promise.all(found)).toEqual([
    [0o750, 3_000],
    [0o550, 5_000],
  ]);
});

test("a file that a tar has again as a link to itself stays as it is", async () => {
  const root = await mkdtemp(path.join(tmpdir(), "berth-unpack-"));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const tar = makeTar([
    { name: "dir/file", content: "kept" },
    { name: "dir/file", type: "1", linkName: "dir/file" },
  ]);
  const unpacked = unpackEntries(fromText(root), Readable.from([tar]), { exactModes: false });
  await expect(unpacked).resolves.toMatchObject({ entryCount: 2 });
  expect(await readFile(path.join(root, "dir/file"), "utf8")).toBe("kept");
});
